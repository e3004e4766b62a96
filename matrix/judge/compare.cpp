#include "matrix/judge/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "matrix/judge/cause.h"
#include "matrix/results/summary.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;

// Runs of digits, with what belongs to a number, as one '#': sizes, errors and times differ from run to run.
std::string without_numbers(const std::string& text) {
  std::string result;
  for (const char c : text.substr(0, text.find('\n'))) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      result += c;
    } else if (!result.ends_with('#')) {
      result += '#';
    }
  }
  return result;
}

bool uncontrolled(Outcome outcome) {
  return outcome == Outcome::hang || outcome == Outcome::crash || outcome == Outcome::oom ||
         outcome == Outcome::unchecked;
}

Verdict kind_of(const PastCase& before, const PastCase& now) {
  const Verdict kind = change(before.result, now.result);
  if (kind == Verdict::regression) return kind;
  if (flaky(now.attempts)) return Verdict::flaky;
  return now.verdict == Verdict::xpass ? Verdict::xpass : kind;
}

Json brief(const std::optional<CaseResult>& result) {
  if (!result) return nullptr;
  Json whole = to_json(*result);
  return {{"outcome", whole.at("outcome")}, {"signature", whole.at("signature")}};
}

// "2.11.0", "none"; nested members get a name of their own.
void flatten(const Json& json, const std::string& name, std::map<std::string, std::string>& to) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) flatten(value, name.empty() ? key : name + "." + key, to);
  } else {
    to[name] = json.is_string() ? json.get<std::string>() : json.is_null() ? "unknown" : json.dump();
  }
}

std::vector<EnvironmentChange> environment_changes(const Json& before, const Json& now) {
  std::map<std::string, std::string> old_values;
  std::map<std::string, std::string> new_values;
  flatten(before, "", old_values);
  flatten(now, "", new_values);
  std::vector<EnvironmentChange> changes;
  for (const auto& [name, value] : old_values) {
    const auto at = new_values.find(name);
    if (at == new_values.end() || at->second != value) {
      changes.push_back({name, value, at == new_values.end() ? "none" : at->second});
    }
  }
  for (const auto& [name, value] : new_values) {
    if (!old_values.contains(name)) changes.push_back({name, "none", value});
  }
  return changes;
}

}  // namespace

std::string kind_of_failure(const CaseResult& result) {
  if (!result.signature) return name(result.outcome);
  const Signature& s = *result.signature;
  const bool worded = result.outcome == Outcome::error || result.outcome == Outcome::invariant;
  return fmt::format("{}\n{}\n{}\n{}\n{}", name(result.outcome), s.mechanism, name(s.phase), s.type,
                     worded ? without_numbers(s.text) : "");
}

Verdict change(const CaseResult& before, const CaseResult& now) {
  const bool was_supported = before.outcome != Outcome::unsupported;
  const bool is_supported = now.outcome != Outcome::unsupported;
  if (!was_supported || !is_supported) return was_supported == is_supported ? Verdict::unchanged : Verdict::changed;
  if (now.outcome == Outcome::pass) return before.outcome == Outcome::pass ? Verdict::unchanged : Verdict::fixed;
  if (before.outcome == Outcome::pass) return Verdict::regression;
  if (uncontrolled(now.outcome) && now.outcome != before.outcome) return Verdict::regression;
  return kind_of_failure(before) == kind_of_failure(now) ? Verdict::unchanged : Verdict::changed;
}

bool flaky(const std::vector<Outcome>& attempts) {
  return std::ranges::adjacent_find(attempts, std::ranges::not_equal_to()) != attempts.end();
}

Comparison compare(const PastDocument& before, const PastDocument& now) {
  Comparison result;
  std::unordered_map<std::string, const PastCase*> earlier;
  for (const PastCase& c : before.cases) {
    if (c.result.outcome != Outcome::notrun) earlier.emplace(id(c.result.which), &c);
  }
  size_t reported = 0;
  std::unordered_set<std::string> seen;
  for (const PastCase& c : now.cases) {
    if (c.result.outcome == Outcome::notrun) continue;
    ++reported;
    CaseChange change{.id = id(c.result.which), .kind = Verdict::fresh, .before = {}, .now = c.result};
    seen.insert(change.id);
    if (const auto at = earlier.find(change.id); at != earlier.end()) {
      change.before = at->second->result;
      change.kind = kind_of(*at->second, c);
      const bool both_unsupported =
          change.before->outcome == Outcome::unsupported && c.result.outcome == Outcome::unsupported;
      if (!both_unsupported) ++result.compared;
    }
    result.cases.push_back(std::move(change));
  }
  for (const PastCase& c : before.cases) {
    const std::string which = id(c.result.which);
    if (c.result.outcome == Outcome::notrun || seen.contains(which)) continue;
    result.cases.push_back({.id = which, .kind = Verdict::absent, .before = c.result, .now = {}});
  }
  for (const CaseChange& c : result.cases) ++result.counts[c.kind];
  result.missing = now.asked > reported ? now.asked - reported : 0;
  result.environment = environment_changes(before.environment, now.environment);
  return result;
}

Exit judge(const Comparison& comparison, const Gate& gate) {
  if (comparison.compared == 0) return Exit::nothing;
  const bool gated = std::ranges::any_of(comparison.counts, [&](const auto& c) { return gate.contains(c.first); });
  return gated || comparison.missing > 0 ? Exit::red : Exit::green;
}

std::string print(const Comparison& comparison) {
  std::string text;
  for (const CaseChange& c : comparison.cases) {
    if (c.kind == Verdict::unchanged) continue;
    text += fmt::format("{} {}\n", name(c.kind), c.id);
    if (c.before) text += fmt::format("    {}\n", print_signature(*c.before));
    if (c.now) text += fmt::format("    {}{}\n", c.before ? "-> " : "", print_signature(*c.now));
  }
  text += fmt::format("compared {}", comparison.compared);
  for (const auto& [kind, count] : comparison.counts) text += fmt::format(", {} {}", count, name(kind));
  text += fmt::format(", missing {}\n", comparison.missing);
  const auto unchanged = comparison.counts.find(Verdict::unchanged);
  const size_t same = unchanged == comparison.counts.end() ? 0 : unchanged->second;
  if (same == comparison.cases.size()) return text;
  if (!comparison.environment.empty()) text += "what changed in the environment:\n";
  for (const auto& [name, before, now] : comparison.environment) {
    text += fmt::format("    {} {} -> {}\n", name, before, now);
  }
  const std::vector<LikelyCause> causes = likely_causes(comparison);
  if (!causes.empty()) text += "likely causes:\n";
  for (const LikelyCause& cause : causes) text += fmt::format("    {}\n", cause.text);
  return text;
}

Json to_json(const Comparison& comparison, const Gate& gate) {
  Json counts = Json::object();
  for (const auto& [kind, count] : comparison.counts) counts[name(kind)] = count;
  Json gates = Json::array();
  for (const Verdict kind : gate) gates.push_back(name(kind));
  Json cases = Json::array();
  for (const CaseChange& c : comparison.cases) {
    if (c.kind == Verdict::unchanged) continue;
    cases.push_back({{"id", c.id}, {"kind", name(c.kind)}, {"old", brief(c.before)}, {"new", brief(c.now)}});
  }
  Json environment = Json::object();
  for (const auto& [name, before, now] : comparison.environment) environment[name] = {{"old", before}, {"new", now}};
  Json causes = Json::array();
  for (const LikelyCause& cause : likely_causes(comparison)) {
    Json ids = Json::array();
    for (const size_t i : cause.cases) ids.push_back(comparison.cases[i].id);
    causes.push_back({{"kind", name(cause.kind)}, {"text", cause.text}, {"cases", std::move(ids)}});
  }
  return {{"compared", comparison.compared},
          {"counts", std::move(counts)},
          {"missing", comparison.missing},
          {"gate", std::move(gates)},
          {"red", judge(comparison, gate) == Exit::red},
          {"environment", std::move(environment)},
          {"causes", std::move(causes)},
          {"cases", std::move(cases)}};
}

}  // namespace regather::matrix
