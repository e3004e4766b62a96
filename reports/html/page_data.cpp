#include "reports/html/page_data.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "case/fixes.h"
#include "case/mechanism.h"
#include "matrix/judge/cause.h"
#include "matrix/results/summary.h"
#include "reports/text.h"

namespace regather::reports {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestText = 2'000;    // of a failure
constexpr size_t kLongestDeath = 20'000;  // of a death's stacks
constexpr size_t kAllDeaths = 400'000;    // of all stacks in a page
constexpr size_t kMostAlso = 6;           // of a case's later departures
constexpr size_t kLongestAlso = 200;

class Strings {
 public:
  // The text's number; -1 for an empty one.
  int of(const std::string& text) {
    if (text.empty()) return -1;
    const auto [at, added] = numbers_.emplace(text, static_cast<int>(list_.size()));
    if (added) list_.push_back(text);
    return at->second;
  }
  Json take() { return std::move(list_); }

 private:
  std::unordered_map<std::string, int> numbers_;
  Json list_ = Json::array();
};

// A few digits: the page rounds anyway, and short numbers are most of its size.
Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return Json::parse(fmt::format("{:.5g}", value));
}

Json gradient(const GradientSummary& g, Strings& strings) {
  return Json::array({strings.of(g.worst), rounded(g.relative_l2), rounded(g.tolerance), rounded(g.cosine),
                      rounded(g.max_abs), g.at, rounded(g.got), rounded(g.want), g.compared, g.missing, g.unexpected,
                      g.nonfinite});
}

class Writer {
 public:
  Writer(const Report& report, Strings& strings) : report_(report), strings_(strings) {
    for (size_t i = 0; i < report.issues.size(); ++i) issues_.emplace(report.issues[i].id, i);
  }

  Json row(const Item& item) {
    const CaseResult& result = item.of.result;
    const Json line = item.of.line.empty() ? Json() : Json::parse(item.of.line, nullptr, false);
    Json issues = Json::array();
    for (const std::string& issue : item.issues) issues.push_back(issues_.at(issue));
    Json where = 0;
    if (result.signature && !(result.signature->where == Where{})) {
      const Where& w = result.signature->where;
      where = Json::array({strings_.of(w.module), strings_.of(w.parameter), strings_.of(w.collective)});
    }
    Json attempts = 0;
    if (item.of.attempts.size() > 1) {
      attempts = Json::array();
      for (const Outcome outcome : item.of.attempts) attempts.push_back(static_cast<int>(outcome));
    }
    const bool compared = result.gradients && result.gradients->compared > 0;
    const Case& c = result.which;
    return Json::array(
        {id(c), static_cast<int>(result.outcome), item.red ? 1 : 0,
         c.fixes.empty()          ? 0
         : matrix::fully_fixed(c) ? 2
                                  : 1,
         strings_.of(shortened(item.failure, kLongestText)),
         strings_.of(item.of.verdict ? matrix::name(*item.of.verdict) : ""),
         strings_.of(result.signature ? result.signature->mechanism : ""), std::move(issues),
         item.repaired ? Json(*item.repaired) : Json(-1), rounded(std::round(result.milliseconds * 10) / 10),
         compared ? gradient(*result.gradients, strings_) : Json(0), std::move(where), also(line), death(line),
         result.loss ? Json::array({rounded(result.loss->got), rounded(result.loss->want)}) : Json(0),
         strings_.of(shortened(result.reason, kLongestText)), std::move(attempts), strings_.of(options_of(result)),
         strings_.of(result.signature ? shortened(result.signature->upstream, kLongestText) : "")});
  }

 private:
  // What the command to run it again has after the id.
  std::string options_of(const CaseResult& result) const {
    const std::string command = rerun_command(report_, result);
    return command.substr(command.find('\'', command.find('\'') + 1) + 1);
  }

  // Later departures, in a few words each.
  Json also(const Json& line) {
    Json list = Json::array();
    const auto at = line.is_object() ? line.find("also") : line.end();
    if (!line.is_object() || at == line.end() || !at->is_array()) return list;
    for (const Json& departure : *at) {
      if (list.size() == kMostAlso) {
        list.push_back(strings_.of(fmt::format("and {} more", at->size() - kMostAlso)));
        break;
      }
      CaseResult one;
      try {
        Json whole = line;
        whole["outcome"] = departure.at("outcome");
        whole["signature"] = departure.at("signature");
        one = result_from_json(nlohmann::json(whole));
      } catch (const std::exception&) {
        continue;  // of a document that is odd there and right elsewhere
      }
      list.push_back(strings_.of(shortened(matrix::print_signature(one), kLongestAlso)));
    }
    return list;
  }

  int death(const Json& line) {
    if (!line.is_object() || !line.contains("death") || deaths_ > kAllDeaths) return -1;
    const std::string text =
        shortened(line["death"].dump(1, ' ', false, Json::error_handler_t::replace), kLongestDeath);
    deaths_ += text.size();
    return strings_.of(text);
  }

  const Report& report_;
  Strings& strings_;
  std::unordered_map<std::string, size_t> issues_;
  size_t deaths_ = 0;
};

Json compared_with(const Before& before, Strings& strings) {
  const auto words = [&](const std::optional<CaseResult>& result) {
    return result ? strings.of(shortened(matrix::print_signature(*result), kLongestText)) : -1;
  };
  Json changes = Json::array();
  for (const matrix::CaseChange& change : before.comparison.cases) {
    if (change.kind == matrix::Verdict::unchanged) continue;
    changes.push_back({matrix::name(change.kind), change.id, words(change.before), words(change.now)});
  }
  Json environment = Json::array();
  for (const auto& e : before.comparison.environment) environment.push_back({e.name, e.before, e.now});
  Json causes = Json::array();
  for (const matrix::LikelyCause& cause : matrix::likely_causes(before.comparison)) causes.push_back(cause.text);
  Json counts = Json::object();
  for (const auto& [kind, count] : before.comparison.counts) counts[matrix::name(kind)] = count;
  return {{"before", before.file},
          {"counts", std::move(counts)},
          {"causes", std::move(causes)},
          {"environment", std::move(environment)},
          {"changes", std::move(changes)}};
}

}  // namespace

std::string page_data(const Report& report, const std::optional<Before>& before) {
  Json axis_list = Json::array();
  for (const Axis& axis : axes()) axis_list.push_back({axis.name, axis.values});
  Json outcomes = Json::array();
  for (int i = 0; i <= static_cast<int>(Outcome::notrun); ++i) outcomes.push_back(name(static_cast<Outcome>(i)));
  Json fixes = Json::object();
  for (const FixInfo& fix : known_fixes()) fixes[fix.name] = fix.repairs;
  Json mechanisms = Json::object();
  for (const MechanismInfo& m : known_mechanisms()) mechanisms[std::string(m.name)] = m.about;
  Json issues = Json::array();
  for (const Issue& issue : report.issues) issues.push_back({issue.id, issue.title, issue.address});
  Strings strings;
  Writer writer(report, strings);
  Json cases = Json::array();
  for (const Item& item : report.items) cases.push_back(writer.row(item));
  Json comparison = before ? compared_with(*before, strings) : Json();
  const Json data{{"axes", std::move(axis_list)},        {"outcomes", std::move(outcomes)}, {"fixes", std::move(fixes)},
                  {"mechanisms", std::move(mechanisms)}, {"issues", std::move(issues)},     {"cases", std::move(cases)},
                  {"compare", std::move(comparison)},    {"strings", strings.take()}};
  return data.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace regather::reports
