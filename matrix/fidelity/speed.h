// `regather bench stack`: the same cells on real packages and on the runtime, and how many times faster that is.
#pragma once

#include "matrix/run.h"

namespace regather::matrix {

struct SpeedOptions {
  RunOptions run;  // the plan and the Python stack; one worker at a time on both stacks
  bool json = false;
};

// Prints a row a backend and one over all, whose times are those of the whole runs: imports count once, as does the
// start of the runtime's worker. Red when a cell does not end the same on both.
Exit compare_speed(const SpeedOptions& options);

}  // namespace regather::matrix
