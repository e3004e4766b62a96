// Runs cases on worker processes. A case that kills or hangs its worker is run once more alone, and recorded as crash
// or hang when that fails too; everything else goes on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "case/case.h"
#include "case/result.h"
#include "matrix/protocol.h"
#include "matrix/schedule.h"
#include "matrix/stack.h"

namespace regather::matrix {

struct RunnerOptions {
  Stack stack;      // its worker is looked for with find_worker() when it names none
  int jobs = 1;     // workers at a time
  Request request;  // device, launcher, model, seed, fault and timeout of every case
};

// Called for every attempt that has ended, in order of completion; records it in the schedule and returns whether to
// go on.
using OnResult = std::function<bool(size_t index, const CaseResult& result, const std::string& line)>;

enum class RunEnd { done, stopped, interrupted };

// Runs what the schedule holds. Needs a SignalScope to live in the calling thread. No worker outlives the call.
// Throws Error("worker") when workers die before they begin any case, UsageError when one cannot use what it was given.
RunEnd run_cases(const std::vector<Case>& cases, Schedule& schedule, const RunnerOptions& options,
                 const OnResult& on_result);

}  // namespace regather::matrix
