#include "matrix/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "case/fixes.h"
#include "case/mechanism.h"
#include "case/support.h"
#include "matrix/results/summary.h"
#include "matrix/runner/runner.h"
#include "matrix/runner/signals.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;

Case with(const Case& c, Fixes fixes) {
  Case other = c;
  other.fixes = std::move(fixes);
  return other;
}

Fixes without(const Fixes& fixes, const std::string& one) {
  Fixes rest = fixes;
  std::erase(rest, one);
  return rest;
}

bool holds(const Fixes& set, const Fixes& part) { return std::ranges::includes(set, part); }

// The case as given, then every legal set of candidates by size.
std::vector<Case> sets_of(const Case& c) {
  const Fixes all = candidates(c);
  std::vector<Case> cases;
  for (uint32_t mask = 0; mask < (1U << all.size()); ++mask) {
    Fixes fixes;
    for (size_t i = 0; i < all.size(); ++i) {
      if ((mask >> i & 1U) != 0) fixes.push_back(all[i]);
    }
    const Case other = with(c, std::move(fixes));
    if (!illegal(other)) cases.push_back(other);
  }
  std::ranges::stable_sort(cases, {}, [](const Case& one) { return one.fixes.size(); });
  std::erase(cases, c);
  cases.insert(cases.begin(), c);
  return cases;
}

// Goes through the sets size by size.
class Search {
 public:
  explicit Search(const Case& c) : cases_(sets_of(c)), schedule_(cases_.size(), {}) {
    schedule_.enqueue({0});
    queued_ = 1;
  }

  RunEnd run() {
    RunnerOptions options;
    options.request.locate = true;
    const SignalScope signals;
    return run_cases(
        cases_, schedule_, options,
        [&](size_t index, const CaseResult& result, const std::string& line) {
          schedule_.record(index, result, line);
          if (result.outcome == Outcome::pass) passing_.push_back(result.which.fixes);
          if (--queued_ == 0) enqueue_size();
          return true;
        },
        [](const DeathReport&) {});
  }

  // Nothing where the set was left out.
  const CaseResult* result(const Fixes& fixes) const {
    for (size_t i = 0; i < cases_.size(); ++i) {
      const std::optional<CaseResult>& deciding = schedule_.history(i).deciding;
      if (cases_[i].fixes == fixes && deciding) return &*deciding;
    }
    return nullptr;
  }

  // The sets that pass and of which no part does.
  std::vector<Fixes> smallest() const {
    std::vector<Fixes> list;
    for (const Fixes& set : passing_) {
      if (std::ranges::none_of(passing_, [&](const Fixes& p) { return p != set && holds(set, p); }))
        list.push_back(set);
    }
    std::ranges::sort(list,
                      [](const Fixes& a, const Fixes& b) { return std::pair(a.size(), a) < std::pair(b.size(), b); });
    return list;
  }

 private:
  // The sets of the next size that hold none that passes; those beyond the case as given, which has run.
  void enqueue_size() {
    while (next_ < cases_.size() && queued_ == 0) {
      const size_t size = cases_[next_].fixes.size();
      for (; next_ < cases_.size() && cases_[next_].fixes.size() == size; ++next_) {
        const Fixes& fixes = cases_[next_].fixes;
        const bool smaller_passes =
            std::ranges::any_of(passing_, [&](const Fixes& p) { return p.size() < size && holds(fixes, p); });
        if (smaller_passes) continue;
        schedule_.enqueue({next_});
        ++queued_;
      }
    }
  }

  std::vector<Case> cases_;
  Schedule schedule_;
  std::vector<Fixes> passing_;
  size_t queued_ = 0;
  size_t next_ = 1;
};

const char* or_unknown(const std::string& text) { return text.empty() ? "unknown" : text.c_str(); }

std::string print_mechanism(const Signature& s) {
  if (s.mechanism.empty()) return "no mechanism was established";
  return fmt::format("{}: {}", s.mechanism, find_mechanism(s.mechanism).about);
}

std::string repairs(const std::string& fix) { return std::ranges::find(known_fixes(), fix, &FixInfo::name)->repairs; }

std::string rerun(const Case& c) { return fmt::format("regather matrix run --case '{}'", id(c)); }

Json brief(const CaseResult& result) {
  Json whole = regather::to_json(result);
  return {{"id", whole.at("id")}, {"outcome", whole.at("outcome")}, {"signature", whole.at("signature")}};
}

}  // namespace

Fixes candidates(const Case& c) {
  Fixes list;
  for (const FixInfo& fix : known_fixes()) {
    const Case alone = with(c, {fix.name});
    if (fix.acts_on(c.backend) && !illegal(alone) && !unsupported(alone)) list.push_back(fix.name);
  }
  return list;
}

std::optional<Explanation> explain(const Case& c) {
  if (const auto why = unsupported(c)) throw UsageError(fmt::format("case '{}' is unsupported: {}", id(c), *why));
  Search search(c);
  if (search.run() == RunEnd::interrupted) return std::nullopt;
  Explanation explanation;
  explanation.given = *search.result(c.fixes);
  const bool passes = explanation.given.outcome == Outcome::pass;
  explanation.superfluous = passes ? c.fixes : Fixes{};
  for (const Fixes& set : search.smallest()) {
    std::vector<Repair> repairs;
    for (const std::string& fix : set) {
      const CaseResult* result = search.result(without(set, fix));
      REGATHER_CHECK(result != nullptr, "explain", "{} was not run without {}", print_fixes(set), fix);
      repairs.push_back({fix, *result});
    }
    explanation.sets.push_back(std::move(repairs));
    if (!passes || !holds(c.fixes, set)) continue;
    std::erase_if(explanation.superfluous,
                  [&](const std::string& fix) { return std::ranges::find(set, fix) != set.end(); });
  }
  return explanation;
}

std::string print(const Explanation& e) {
  std::string text = fmt::format("{}\n  {}\n", id(e.given.which), print_signature(e.given));
  if (e.given.signature) {
    const Signature& s = *e.given.signature;
    text += fmt::format("  {}\n", print_mechanism(s));
    text += fmt::format("  first departure: module {}, parameter {}, rank {}, step {}, last collective {}\n",
                        or_unknown(s.where.module), or_unknown(s.where.parameter), s.rank, s.step,
                        or_unknown(s.where.collective));
  }
  for (const std::string& fix : e.superfluous) text += fmt::format("  superfluous: {}\n", fix);
  if (e.sets.empty()) text += "no set of fixes makes it pass\n";
  for (const std::vector<Repair>& set : e.sets) {
    Fixes fixes;
    for (const Repair& repair : set) fixes.push_back(repair.fix);
    text += fmt::format("passes with fix={}\n", print_fixes(fixes));
    for (const Repair& repair : set) {
      text += fmt::format("  {}: {}\n    without it {}\n", repair.fix, repairs(repair.fix),
                          print_signature(repair.without));
      if (repair.without.signature) text += fmt::format("    {}\n", print_mechanism(*repair.without.signature));
    }
  }
  return text + rerun(e.given.which) + "\n";
}

Json to_json(const Explanation& e) {
  Json sets = Json::array();
  for (const std::vector<Repair>& set : e.sets) {
    Json fixes = Json::array();
    Json list = Json::array();
    for (const Repair& repair : set) {
      fixes.push_back(repair.fix);
      const auto& signature = repair.without.signature;
      list.push_back({{"fix", repair.fix},
                      {"repairs", repairs(repair.fix)},
                      {"mechanism", signature && !signature->mechanism.empty() ? Json(signature->mechanism) : Json()},
                      {"without", brief(repair.without)}});
    }
    sets.push_back({{"fixes", std::move(fixes)}, {"repairs", std::move(list)}});
  }
  Json json = brief(e.given);
  const auto& signature = e.given.signature;
  json["about"] =
      signature && !signature->mechanism.empty() ? Json(find_mechanism(signature->mechanism).about) : Json();
  json["sets"] = std::move(sets);
  json["superfluous"] = e.superfluous;
  json["rerun"] = rerun(e.given.which);
  return json;
}

}  // namespace regather::matrix
