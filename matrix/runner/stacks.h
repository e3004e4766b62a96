// The stacks of a worker that is overdue.
#pragma once

#include <vector>

#include "matrix/runner/worker_process.h"

namespace regather::matrix {

// Makes every rank of the worker write its stack to standard error, and waits until they have, at most 2 s. Returns the
// ranks that cannot: their processes are stopped.
std::vector<int> see_stacks(WorkerProcess& worker);

}  // namespace regather::matrix
