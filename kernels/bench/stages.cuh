// How long the stages of a call take, in steady state: an event after each. The events themselves cost a little.
#pragma once

#include <map>
#include <string>

#include "kernels/tests/problem.cuh"

namespace regather::kernels::bench {

// Milliseconds a call, by stage, over `calls` calls after as many that are not timed.
std::map<std::string, double> stage_times(testing::Problem& problem, Context& context, int calls);

}  // namespace regather::kernels::bench
