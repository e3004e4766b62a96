// The verdict on each result of a run: against its expectation, against an earlier document, by the default rules.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "case/result.h"
#include "matrix/judge/expectation.h"
#include "matrix/judge/gate.h"
#include "matrix/judge/past_document.h"
#include "matrix/results/verdict.h"

namespace regather::matrix {

struct Judgement {
  Verdict verdict = Verdict::expected;
  std::string why;  // what was expected instead and where that stands, in one line; empty where nothing is to say
};

// The verdicts that make a run red unless the user says otherwise.
inline const Gate kDefaultGate{Verdict::regression, Verdict::xpass, Verdict::absent};

// An entry that selects a case decides alone; without one the default rules do, and among what they let pass, the
// earlier document. Attempts that differ are flaky unless the deciding one is a regression, an xpass, or red.
class Judge {
 public:
  Judge(Expectations expectations, std::optional<PastDocument> baseline, const Setting& setting,
        Gate gate = kDefaultGate);

  bool red(Verdict verdict) const { return gate_.contains(verdict); }

  Judgement of(const CaseResult& result, const std::vector<Outcome>& attempts) const;

  // What is wrong with the entries themselves, for this plan: two that select one case; a case that none selects though
  // the file says that it is complete; and, where the plan is the whole of the definition that the file names, an entry
  // that selects nothing. Entries whose conditions do not hold are not asked.
  std::vector<std::string> complaints(const std::vector<Case>& plan, const std::string& definition, bool whole) const;

  // Entries that should have been looked at before `today`, YYYY-MM-DD.
  std::vector<std::string> overdue(const std::string& today) const;

  // The exit code of a run: red verdicts before what has not run, and that before nothing being compared.
  Exit decide(const std::vector<CaseResult>& results, const std::vector<Judgement>& judgements, bool complaints) const;

  // The earlier document's cases that are not in the plan, where both are the whole of one definition.
  std::vector<std::string> absent(const std::vector<Case>& plan, const std::string& definition, bool whole) const;

 private:
  const Expectation* entry_for(const Case& c) const;
  Judgement beside_baseline(const CaseResult& result, Judgement otherwise) const;
  bool stands(Verdict verdict) const;

  Expectations expectations_;  // those whose conditions hold
  std::optional<std::string> past_definition_;
  std::map<std::string, CaseResult> past_;
  Gate gate_;
};

}  // namespace regather::matrix
