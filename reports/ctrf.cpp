#include "reports/ctrf.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace regather::reports {
namespace {

using Json = nlohmann::ordered_json;

std::string_view status_of(const Item& item) {
  const Outcome outcome = item.of.result.outcome;
  if (item.red) return "failed";
  if (outcome == Outcome::pass) return "passed";
  if (outcome == Outcome::unsupported) return "skipped";
  if (outcome == Outcome::notrun) return "pending";
  return "other";
}

int64_t whole(double milliseconds) {
  return milliseconds > 0 && milliseconds < 1e15 ? static_cast<int64_t>(milliseconds) : 0;  // not finite: 0
}

Json test(const Item& item, const Report& report) {
  const CaseResult& result = item.of.result;
  const auto axes = axis_values(result.which);
  Json json{{"name", id(result.which)},
            {"status", status_of(item)},
            {"duration", whole(result.milliseconds)},
            {"suite", {axes[0].value, axes[1].value}},
            {"rawStatus", name(result.outcome)}};
  if (!item.failure.empty()) json["message"] = item.failure;
  if (item.failure.empty() && !result.reason.empty()) json["message"] = result.reason;
  if (!item.issues.empty()) json["tags"] = item.issues;
  if (item.of.verdict == matrix::Verdict::flaky) json["flaky"] = true;
  Json extra{{"rerun", rerun_command(report, result)}};
  if (result.signature && !result.signature->mechanism.empty()) extra["mechanism"] = result.signature->mechanism;
  if (item.of.verdict) extra["verdict"] = matrix::name(*item.of.verdict);
  if (item.repaired) extra["passes_as"] = id(report.items[*item.repaired].of.result.which);
  json["extra"] = std::move(extra);
  return json;
}

}  // namespace

std::string ctrf(const Report& report) {
  Json tests = Json::array();
  Json summary{
      {"tests", report.items.size()}, {"passed", 0}, {"failed", 0}, {"pending", 0}, {"skipped", 0}, {"other", 0}};
  for (const Item& item : report.items) {
    tests.push_back(test(item, report));
    Json& count = summary[std::string(status_of(item))];
    count = count.get<int>() + 1;
  }
  summary["start"] = report.ended - whole(report.document.seconds * 1e3);
  summary["stop"] = report.ended;
  const Json& environment = report.document.environment;
  const auto text_of = [&](const char* key) {
    const auto at = environment.find(key);
    return at != environment.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const Json json{{"reportFormat", "CTRF"},
                  {"specVersion", "0.0.0"},
                  {"results",
                   {{"tool", {{"name", "regather"}, {"version", text_of("regather")}}},
                    {"summary", std::move(summary)},
                    {"tests", std::move(tests)},
                    {"environment", {{"appName", report.document.definition}, {"extra", environment}}}}}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace regather::reports
