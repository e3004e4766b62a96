#include "matrix/judge/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "case/support.h"
#include "matrix/judge/compare.h"
#include "matrix/results/summary.h"

namespace regather::matrix {
namespace {

bool selects(const Expectation& entry, const Case& c) { return entry.when.hold(c) && entry.selects(c); }

Judgement by_entry(const Expectation& entry, const CaseResult& result) {
  const bool passes = result.outcome == Outcome::pass;
  if (entry.met_by(result)) return {passes ? Verdict::expected : Verdict::xfail, ""};
  if (passes) {
    return {Verdict::xpass, fmt::format("{} expects {}: delete the entry, or narrow it to what still fails",
                                        entry.where, print_expected(entry))};
  }
  return {Verdict::regression, fmt::format("{} expects {}", entry.where, print_expected(entry))};
}

Judgement uncovered(const CaseResult& result, const std::string& file) {
  if (result.outcome == Outcome::pass) return {Verdict::expected, ""};  // and a complaint
  return {Verdict::regression, file + " says that it is complete, and no entry selects this case"};
}

Judgement by_default(const CaseResult& result) {
  if (red(result)) return {Verdict::regression, ""};
  return {result.outcome == Outcome::pass ? Verdict::expected : Verdict::xfail, ""};
}

}  // namespace

Judge::Judge(Expectations expectations, std::optional<PastDocument> baseline, const Setting& setting, Gate gate)
    : expectations_(std::move(expectations)), gate_(std::move(gate)) {
  std::erase_if(expectations_.entries, [&](const Expectation& entry) { return !entry.when.hold(setting); });
  if (!baseline) return;
  past_definition_ = baseline->definition;
  for (PastCase& c : baseline->cases) {
    if (c.result.outcome == Outcome::notrun) continue;
    std::string which = id(c.result.which);
    past_.emplace(std::move(which), std::move(c.result));
  }
}

const Expectation* Judge::entry_for(const Case& c) const {
  const auto at = std::ranges::find_if(expectations_.entries, [&](const Expectation& e) { return selects(e, c); });
  return at == expectations_.entries.end() ? nullptr : &*at;
}

Judgement Judge::of(const CaseResult& result, const std::vector<Outcome>& attempts) const {
  if (result.outcome == Outcome::notrun) return {Verdict::absent, result.reason};
  Judgement judgement;
  if (result.outcome == Outcome::unsupported) {
    judgement = beside_baseline(result, {Verdict::expected, ""});
  } else if (const Expectation* entry = entry_for(result.which)) {
    judgement = by_entry(*entry, result);
  } else {
    judgement =
        expectations_.to_cover.contains(id(result.which)) ? uncovered(result, expectations_.file) : by_default(result);
    if (!stands(judgement.verdict)) judgement = beside_baseline(result, judgement);
  }
  if (!stands(judgement.verdict) && flaky(attempts)) {
    std::string outcomes;
    for (const Outcome outcome : attempts) outcomes += fmt::format("{}{}", outcomes.empty() ? "" : ", ", name(outcome));
    return {Verdict::flaky, "attempts: " + outcomes};
  }
  return judgement;
}

// Whether nothing milder may take its place.
bool Judge::stands(Verdict verdict) const {
  return verdict == Verdict::regression || verdict == Verdict::xpass || red(verdict);
}

Judgement Judge::beside_baseline(const CaseResult& result, Judgement otherwise) const {
  if (!past_definition_) return otherwise;
  const auto at = past_.find(id(result.which));
  if (at == past_.end()) return {Verdict::fresh, ""};
  const Verdict kind = change(at->second, result);
  if (kind == Verdict::unchanged) return otherwise;
  return {kind, "the baseline has " + print_signature(at->second)};
}

std::vector<std::string> Judge::complaints(const std::vector<Case>& plan, const std::string& definition,
                                           bool whole) const {
  std::vector<std::string> list;
  const auto& entries = expectations_.entries;
  std::vector<size_t> selected(entries.size());
  std::set<std::pair<size_t, size_t>> overlaps;  // each pair is told once
  std::vector<std::string> uncovered;
  for (const Case& c : plan) {
    std::optional<size_t> first;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!selects(entries[i], c)) continue;
      ++selected[i];
      if (!first) {
        first = i;
      } else if (overlaps.emplace(*first, i).second) {
        list.push_back(fmt::format("{} overlaps {}: both select {}", entries[i].where, entries[*first].where, id(c)));
      }
    }
    if (!first && expectations_.to_cover.contains(id(c)) && !unsupported(c)) uncovered.push_back(id(c));
  }
  if (!uncovered.empty()) {
    list.push_back(fmt::format("{} says that it is complete, yet no entry selects {}{}", expectations_.file,
                               uncovered.front(),
                               uncovered.size() > 1 ? fmt::format(" and {} more", uncovered.size() - 1) : ""));
  }
  if (!whole || definition != expectations_.definition) return list;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (selected[i] == 0) list.push_back(fmt::format("{} selects nothing: delete it, or correct it", entries[i].where));
  }
  return list;
}

std::vector<std::string> Judge::overdue(const std::string& today) const {
  std::vector<std::string> list;
  for (const Expectation& entry : expectations_.entries) {
    if (entry.review_by.empty() || entry.review_by >= today) continue;
    list.push_back(fmt::format("{} should have been reviewed by {}", entry.where, entry.review_by));
  }
  return list;
}

std::vector<std::string> Judge::absent(const std::vector<Case>& plan, const std::string& definition, bool whole) const {
  std::vector<std::string> list;
  if (!whole || past_definition_ != definition) return list;
  std::set<std::string> planned;
  for (const Case& c : plan) planned.insert(id(c));
  for (const auto& [which, result] : past_) {
    if (!planned.contains(which)) list.push_back(which);
  }
  return list;
}

Exit Judge::decide(const std::vector<CaseResult>& results, const std::vector<Judgement>& judgements,
                   bool complaints) const {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].outcome != Outcome::notrun) complaints = complaints || red(judgements[i].verdict);
  }
  if (complaints) return Exit::red;
  const auto all = [&](Outcome outcome) {
    return std::ranges::all_of(results, [&](const CaseResult& r) { return r.outcome == outcome; });
  };
  if (std::ranges::any_of(results, [](const CaseResult& r) { return r.outcome == Outcome::notrun; })) {
    return Exit::incomplete;
  }
  return all(Outcome::unsupported) ? Exit::nothing : Exit::green;
}

}  // namespace regather::matrix
