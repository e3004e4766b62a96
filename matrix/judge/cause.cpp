#include "matrix/judge/cause.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "case/fixes.h"
#include "case/mechanism.h"

namespace regather::matrix {
namespace {

std::string brief(const CaseResult& result) {
  std::string text = name(result.outcome);
  if (!result.signature) return text;
  text += fmt::format(" in {}", name(result.signature->phase));
  return result.signature->mechanism.empty() ? text : fmt::format("{} [{}]", text, result.signature->mechanism);
}

using Values = std::map<std::string, std::string>;  // by axis; those that all cases share

Values values_of(const Case& c) {
  Values values;
  for (AxisValue& v : axis_values(c)) values[v.axis] = std::move(v.value);
  return values;
}

// Leaves what the case has as well.
void keep_shared(Values& shared, const Case& c) {
  const Values values = values_of(c);
  std::erase_if(shared, [&](const auto& entry) { return values.at(entry.first) != entry.second; });
}

const CaseResult& given(const std::optional<CaseResult>& result) {
  if (!result) throw Error("compare", "a changed case that one document lacks");
  return *result;
}

const Case& case_of(const CaseChange& change) { return change.now ? change.now->which : given(change.before).which; }

class Causes {
 public:
  explicit Causes(const Comparison& comparison) : comparison_(comparison) {
    for (size_t i = 0; i < comparison.cases.size(); ++i) {
      const CaseChange& change = comparison.cases[i];
      by_id_.emplace(change.id, i);
      if (i == 0) everywhere_ = values_of(case_of(change));
      keep_shared(everywhere_, case_of(change));
    }
  }

  std::string text(const LikelyCause& group) const {
    const CaseChange& first = comparison_.cases[group.cases.front()];
    const std::string because = why(group);
    return fmt::format("{} {}, {} -> {}{}{}", group.cases.size(), name(group.kind), brief(given(first.before)),
                       brief(given(first.now)), where(group), because.empty() ? "" : ": " + because);
  }

 private:
  // "; all have backend=ddp, fix redirect": what the whole documents do not have in common.
  std::string where(const LikelyCause& group) const {
    if (group.cases.size() == 1) return "";  // the case is told by its id
    Values shared = values_of(case_of(comparison_.cases[group.cases.front()]));
    for (const size_t i : group.cases) keep_shared(shared, case_of(comparison_.cases[i]));
    std::vector<std::string> words;
    for (const auto& [axis, value] : shared) {
      if (!everywhere_.contains(axis)) words.push_back(fmt::format("{}={}", axis, value));
    }
    const Fixes fixes = shared_fixes(group);
    if (!fixes.empty()) words.push_back(fmt::format("fix {}", print_fixes(fixes)));
    return words.empty() ? "" : fmt::format("; all have {}", fmt::join(words, ", "));
  }

  Fixes shared_fixes(const LikelyCause& group) const {
    Fixes shared = case_of(comparison_.cases[group.cases.front()]).fixes;
    for (const size_t i : group.cases) {
      std::erase_if(shared, [&](const std::string& fix) { return !case_of(comparison_.cases[i]).has(fix); });
    }
    return shared;
  }

  std::string why(const LikelyCause& group) const {
    std::vector<std::string> words;
    const CaseResult& now = given(comparison_.cases[group.cases.front()].now);
    if (const std::string fix = idle_fix(group); !fix.empty()) {
      words.push_back(fmt::format("the fix {} no longer acts: they fail as without it", fix));
    }
    if (now.signature) {
      const auto at = std::ranges::find(known_mechanisms(), now.signature->mechanism, &MechanismInfo::name);
      if (at != known_mechanisms().end()) words.emplace_back(at->about);
    }
    std::vector<std::string> versions;
    for (const auto& [what, before, after] : comparison_.environment) {
      const bool software = what == "regather" || what == "commit" || what == "torch" || what == "fault" ||
                            what == "stack" || what == "compiler" || what.starts_with("packages.");
      if (software) versions.push_back(fmt::format("{} {} -> {}", what, before, after));
    }
    if (!versions.empty()) words.push_back(fmt::format("changed: {}", fmt::join(versions, ", ")));
    if (words.empty() && now.outcome != Outcome::pass) return "no cause is known: the environments are the same";
    return fmt::format("{}", fmt::join(words, "; "));
  }

  // A fix that every case has and without which each fails now as it does with it.
  std::string idle_fix(const LikelyCause& group) const {
    for (const std::string& fix : shared_fixes(group)) {
      const bool idle = std::ranges::all_of(group.cases, [&](size_t i) {
        const CaseResult& now = given(comparison_.cases[i].now);
        if (now.outcome == Outcome::pass) return false;
        Case without = now.which;
        std::erase(without.fixes, fix);
        const auto at = by_id_.find(id(without));
        if (at == by_id_.end()) return false;
        const auto& other = comparison_.cases[at->second].now;
        return other && kind_of_failure(*other) == kind_of_failure(now);
      });
      if (idle) return fix;
    }
    return "";
  }

  const Comparison& comparison_;
  std::unordered_map<std::string, size_t> by_id_;
  Values everywhere_;  // what all cases of both documents share
};

}  // namespace

std::vector<LikelyCause> likely_causes(const Comparison& comparison) {
  std::map<std::tuple<Verdict, std::string, std::string>, LikelyCause> groups;
  for (size_t i = 0; i < comparison.cases.size(); ++i) {
    const CaseChange& change = comparison.cases[i];
    // What stands in one document alone came and went with the plan.
    if (change.kind == Verdict::unchanged || !change.before || !change.now) continue;
    LikelyCause& group = groups[{change.kind, kind_of_failure(*change.before), kind_of_failure(*change.now)}];
    group.kind = change.kind;
    group.cases.push_back(i);
  }
  const Causes causes(comparison);
  std::vector<LikelyCause> list;
  for (auto& entry : groups) {
    list.push_back(std::move(entry.second));
    list.back().text = causes.text(list.back());
  }
  std::ranges::stable_sort(list, [](const LikelyCause& a, const LikelyCause& b) {
    return std::pair(a.kind == Verdict::regression, a.cases.size()) >
           std::pair(b.kind == Verdict::regression, b.cases.size());
  });
  return list;
}

}  // namespace regather::matrix
