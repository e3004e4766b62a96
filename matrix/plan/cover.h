// A few cases of a plan that try every combination of any T axis values that the plan has.
#pragma once

#include <cstddef>
#include <vector>

#include "case/case.h"

namespace regather::matrix {

constexpr size_t kLargestStrength = 6;

// A subset of `cases`, in their order, such that for every choice of `strength` axes (the set of fixes is one) every
// combination of their values that a supported case has is had by a case of the subset. Greedy: the case that brings
// the most new combinations comes next, the earlier one among equals; at the end those are dropped that the others make
// superfluous. With fewer varying axes than `strength`, every supported case. Throws UsageError where the combinations
// are too many to count.
std::vector<Case> cover(const std::vector<Case>& cases, size_t strength);

}  // namespace regather::matrix
