// `regather bench stack`: the same cells on real packages and on the runtime, and how many times faster that is.
#pragma once

#include "matrix/run.h"

namespace regather::matrix {

struct SpeedOptions {
  RunOptions run;  // the plan and the Python stack
  int jobs = 1;    // the runtime's workers in the whole run
  bool json = false;
};

// Prints a row a backend, the sums of its cells' times with one worker on both stacks, and one over all, whose times
// are those of whole runs as each stack is run: imports and the workers' start count once, the runtime has `jobs`
// workers. Red when a cell does not end the same on both.
Exit compare_speed(const SpeedOptions& options);

}  // namespace regather::matrix
