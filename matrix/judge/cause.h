// Where to look first when two documents differ: changes that are alike, and what they have in common.
#pragma once

#include <string>
#include <vector>

#include "matrix/judge/compare.h"

namespace regather::matrix {

struct LikelyCause {
  Verdict kind = Verdict::changed;
  std::vector<size_t> cases;  // of the comparison's
  std::string text;           // a line: how many, from what to what, where, and why
};

// Regressions first, and of them the largest group. The cause named is a fix that no longer acts, where the cases now
// fail as they do without it; their mechanism; and the versions that changed.
std::vector<LikelyCause> likely_causes(const Comparison& comparison);

}  // namespace regather::matrix
