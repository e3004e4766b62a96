// Whether the runtime did what the real packages did, in one cell.
#pragma once

#include <string>
#include <vector>

#include "matrix/fidelity/recording.h"

namespace regather::matrix {

struct Difference {
  std::string what;  // outcome, phase, step, mechanism, text, also, gradients, loss
  std::string real;
  std::string runtime;
};

// Empty where they agree: the outcome; of a failure its phase, step, mechanism and first words (upstream's, where the
// runtime names them) and every later departure of rank 0's; of the gradients the counts of missing, unexpected and
// non-finite ones, the error of the worst to within the tolerance of the case's dtype, and the distance of
// the two stacks' gradients from each other where it was measured.
std::vector<Difference> differences(const RecordedCell& real, const CaseResult& runtime);

}  // namespace regather::matrix
