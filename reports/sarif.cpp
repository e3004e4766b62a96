#include "reports/sarif.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "case/mechanism.h"
#include "matrix/plan/plan.h"

namespace regather::reports {
namespace {

using Json = nlohmann::ordered_json;
using matrix::Verdict;

// The mechanism, else the outcome: what the same rule breaks is the same kind of fault.
std::string rule_of(const CaseResult& result) {
  if (result.outcome == Outcome::pass) return "xpass";
  if (result.signature && !result.signature->mechanism.empty()) return result.signature->mechanism;
  return name(result.outcome);
}

std::string about(const std::string& rule) {
  const auto& known = known_mechanisms();
  const auto at = std::ranges::find(known, rule, &MechanismInfo::name);
  if (at != known.end()) return std::string(at->about);
  if (rule == "xpass") return "a case passes though its expectation says that it fails";
  return fmt::format("a case ends in '{}' without a known mechanism", rule);
}

std::optional<std::string> baseline_state(const std::optional<Verdict>& verdict) {
  if (!verdict) return std::nullopt;
  switch (*verdict) {
    case Verdict::regression:
    case Verdict::fresh:
    case Verdict::xpass:
      return "new";
    case Verdict::changed:
    case Verdict::flaky:
      return "updated";
    case Verdict::absent:
      return "absent";
    default:
      return "unchanged";
  }
}

const char* level_of(const Item& item) {
  if (item.red) return "error";
  return item.of.verdict == Verdict::flaky ? "warning" : "note";
}

Json result_of(const Item& item, const Report& report, size_t rule) {
  const CaseResult& result = item.of.result;
  const std::string which = id(result.which);
  const std::string rule_id = rule_of(result);
  Json json{{"ruleId", rule_id},
            {"ruleIndex", rule},
            {"level", level_of(item)},
            {"message",
             {{"text",
               fmt::format("{}: {}", which,
                           item.failure.empty() ? "passes though its expectation says that it fails" : item.failure)}}},
            {"locations",
             {{{"physicalLocation", {{"artifactLocation", {{"uri", "results.json"}}}}},
               {"logicalLocations", {{{"fullyQualifiedName", which}, {"kind", "member"}}}}}}},
            {"partialFingerprints", {{"caseAndRule/v1", matrix::stable_hash(which + "\n" + rule_id)}}}};
  if (const auto state = baseline_state(item.of.verdict)) json["baselineState"] = *state;
  Json addresses = Json::array();
  for (const std::string& issue : item.issues) {
    const auto at = std::ranges::find(report.issues, issue, &Issue::id);
    if (at != report.issues.end() && !at->address.empty()) addresses.push_back(at->address);
  }
  if (!addresses.empty()) json["workItemUris"] = std::move(addresses);
  if (item.of.verdict == Verdict::xfail) {
    json["suppressions"] = Json::array({{{"kind", "external"}, {"justification", "fails as it is expected to"}}});
  }
  Json properties{{"issues", item.issues}, {"rerun", rerun_command(report, result)}};
  if (item.repaired) properties["passesAs"] = id(report.items[*item.repaired].of.result.which);
  if (result.gradients && result.gradients->compared > 0) {
    properties["worstGradient"] = result.gradients->worst;
    properties["relativeL2"] = result.gradients->relative_l2;
    properties["tolerance"] = result.gradients->tolerance;
  }
  json["properties"] = std::move(properties);
  return json;
}

}  // namespace

std::string sarif(const Report& report) {
  std::vector<const Item*> shown;
  std::map<std::string, size_t> rules;
  for (const Item& item : report.items) {
    if (!item.red && !failed(item.of.result)) continue;
    shown.push_back(&item);
    rules.emplace(rule_of(item.of.result), 0);
  }
  Json list = Json::array();
  for (auto& [rule, index] : rules) {
    index = list.size();
    list.push_back({{"id", rule}, {"shortDescription", {{"text", about(rule)}}}});
  }
  Json results = Json::array();
  for (const Item* item : shown) results.push_back(result_of(*item, report, rules.at(rule_of(item->of.result))));
  Json notifications = Json::array();
  if (report.missing > 0) {
    notifications.push_back(
        {{"level", "error"},
         {"message", {{"text", fmt::format("{} of the plan's cases have no result", report.missing)}}}});
  }
  Json driver{{"name", "regather"}, {"rules", std::move(list)}};
  const auto version = report.document.environment.find("regather");
  if (version != report.document.environment.end() && version->is_string()) driver["version"] = *version;
  const Json json{
      {"$schema", "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"},
      {"version", "2.1.0"},
      {"runs",
       {{{"tool", {{"driver", std::move(driver)}}},
         {"invocations",
          {{{"executionSuccessful", report.missing == 0}, {"toolExecutionNotifications", std::move(notifications)}}}},
         {"results", std::move(results)},
         {"properties", {{"verdict", verdict_sentence(report)}, {"environment", report.document.environment}}}}}}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace regather::reports
