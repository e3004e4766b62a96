// What the results of a plan come to: the verdict on each, what is wrong with the whole, what to say, the exit code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "matrix/judge/judge.h"
#include "matrix/results/document.h"

namespace regather::matrix {

// The rules that a user has chosen to judge by.
struct Rules {
  std::string expectations;  // a name or a file; empty: the default rules alone
  std::string baseline;      // an earlier results.json; empty: none
  Gate gate = kDefaultGate;

  // Whether verdicts are written into the document.
  bool given() const { return !expectations.empty() || !baseline.empty(); }
  // As options of a command line, each after a space.
  std::string options() const;
};

// Reads what they name. Throws UsageError.
Judge load_judge(const Rules& rules, const Setting& setting);

struct Conclusion {
  Exit exit = Exit::green;
  std::vector<Judgement> judgements;  // of each case of the document
  std::vector<std::string> complaints;
  std::vector<std::string> absent;  // ids that the baseline has and the plan has not
  std::vector<std::string> overdue;
};

// Judges each case; those with a recorded verdict and no other rules keep it. `whole`: the plan is all of its
// definition. Writes the verdicts into the document where there are rules.
Conclusion conclude(Document& document, const Judge& judge, const Rules& rules, bool whole);

// Red cases with the command that runs each again (`rerun`: its options after the id), what is worth telling besides,
// the table and the counts, on standard error.
void print(const Conclusion& conclusion, const Document& document, const Judge& judge, const std::string& rerun,
           const std::string& out);

}  // namespace regather::matrix
