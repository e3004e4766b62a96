#include "matrix/judge/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "matrix/summary.h"

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

// The part of a failure that is the same in every run of one bug.
std::string kind_of(const CaseResult& result) {
  if (!result.signature) return name(result.outcome);
  const Signature& s = *result.signature;
  const bool worded = result.outcome == Outcome::error || result.outcome == Outcome::invariant;
  return fmt::format("{}\n{}\n{}\n{}\n{}", name(result.outcome), s.mechanism, name(s.phase), s.type,
                     worded ? without_numbers(s.text) : "");
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

}  // namespace

Verdict change(const CaseResult& before, const CaseResult& now) {
  const bool was_supported = before.outcome != Outcome::unsupported;
  const bool is_supported = now.outcome != Outcome::unsupported;
  if (!was_supported || !is_supported) return was_supported == is_supported ? Verdict::unchanged : Verdict::changed;
  if (now.outcome == Outcome::pass) return before.outcome == Outcome::pass ? Verdict::unchanged : Verdict::fixed;
  if (before.outcome == Outcome::pass) return Verdict::regression;
  if (uncontrolled(now.outcome) && now.outcome != before.outcome) return Verdict::regression;
  return kind_of(before) == kind_of(now) ? Verdict::unchanged : Verdict::changed;
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
  return result;
}

std::set<Verdict> parse_gate(std::string_view text) {
  std::set<Verdict> gate;
  for (size_t begin = 0;;) {
    const size_t end = text.find(',', begin);
    const std::string_view word = text.substr(begin, end - begin);
    constexpr Verdict kGates[] = {Verdict::regression, Verdict::changed, Verdict::fixed, Verdict::fresh,
                                  Verdict::absent,     Verdict::flaky,   Verdict::xpass};
    const auto at = std::ranges::find(kGates, word, [](Verdict v) { return std::string_view(name(v)); });
    if (at == std::end(kGates)) {
      throw UsageError(
          fmt::format("--gate '{}': '{}' is not a kind of change: expected regression, changed, fixed, new, absent, "
                      "flaky or xpass, "
                      "joined by commas",
                      text, word));
    }
    gate.insert(*at);
    if (end == std::string_view::npos) return gate;
    begin = end + 1;
  }
}

Exit judge(const Comparison& comparison, const std::set<Verdict>& gate) {
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
  return text + fmt::format(", missing {}\n", comparison.missing);
}

Json to_json(const Comparison& comparison, const std::set<Verdict>& gate) {
  Json counts = Json::object();
  for (const auto& [kind, count] : comparison.counts) counts[name(kind)] = count;
  Json gates = Json::array();
  for (const Verdict kind : gate) gates.push_back(name(kind));
  Json cases = Json::array();
  for (const CaseChange& c : comparison.cases) {
    if (c.kind == Verdict::unchanged) continue;
    cases.push_back({{"id", c.id}, {"kind", name(c.kind)}, {"old", brief(c.before)}, {"new", brief(c.now)}});
  }
  return {{"compared", comparison.compared},
          {"counts", std::move(counts)},
          {"missing", comparison.missing},
          {"gate", std::move(gates)},
          {"red", judge(comparison, gate) == Exit::red},
          {"cases", std::move(cases)}};
}

}  // namespace regather::matrix
