// Two documents, case by case.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/result.h"
#include "matrix/judge/gate.h"
#include "matrix/judge/past_document.h"
#include "matrix/results/verdict.h"

namespace regather::matrix {

// What became of a case that stands in both. regression: passed and fails, or now fails by hang, crash, oom or
// unchecked and did not. changed: fails with another outcome, mechanism, phase or type, or an error or broken invariant
// in other words (numbers aside); or it was supported and is not, or the other way. Steps, ranks and the texts of
// gradients hang on rounding and timing and are left out.
Verdict change(const CaseResult& before, const CaseResult& now);

// The part of a failure that is the same in every run of one bug, on several lines: outcome, mechanism, phase, type,
// and of an error or broken invariant its text, numbers aside.
std::string kind_of_failure(const CaseResult& result);

// Whether attempts came out differently.
bool flaky(const std::vector<Outcome>& attempts);

struct CaseChange {
  std::string id;
  Verdict kind = Verdict::unchanged;
  std::optional<CaseResult> before;  // not of a new case
  std::optional<CaseResult> now;     // not of an absent one
};

struct EnvironmentChange {
  std::string name;  // "torch", "packages.trl"
  std::string before;
  std::string now;
};

struct Comparison {
  std::vector<CaseChange> cases;  // the newer document's, then what is absent from it
  std::map<Verdict, size_t> counts;
  size_t compared = 0;  // stand in both and are supported in one at least
  size_t missing = 0;   // asked of the newer document's plan, and not reported
  // What is not the same in the two environments, the likely cause of a change: name, old and new value.
  std::vector<EnvironmentChange> environment;
};

// A regression comes before everything; then flaky attempts, a recorded xpass, and what became of the case.
Comparison compare(const PastDocument& before, const PastDocument& now);

// Nothing when no case was compared; red where a gated kind occurs or a case is missing.
Exit judge(const Comparison& comparison, const Gate& gate);

// What is not as before, each with its old and its new signature, the counts, and, where anything is not as before,
// what changed in the environment and the likely causes (matrix/judge/cause.h).
std::string print(const Comparison& comparison);
nlohmann::ordered_json to_json(const Comparison& comparison, const Gate& gate);

}  // namespace regather::matrix
