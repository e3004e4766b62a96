// A chunk by the plain path.
#pragma once

#include "kernels/call.h"

namespace regather::kernels {

// `accumulate`: onto the weight's and the bias's gradients of earlier chunks.
void plain_chunk(const Call& call, const Span& span, bool accumulate);
// Only the log-probabilities.
void plain_log_probabilities(const Call& call, const Span& span);

}  // namespace regather::kernels
