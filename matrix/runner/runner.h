// Runs cases on worker processes. A death is confirmed before it is believed: a case that kills or hangs its worker, or
// answers that a rank died or hung, runs again alone, and is recorded as crash or hang when that fails too. Where alone
// it does not, the cases that ran before it in the same worker are looked through for the smallest set that brings it
// down. A signal that another process sent comes from outside, and is forgiven five times; when the kernel ran out
// of memory meanwhile the case is oom. Everything else goes on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "case/case.h"
#include "case/result.h"
#include "matrix/death/deaths.h"
#include "matrix/runner/protocol.h"
#include "matrix/runner/schedule.h"
#include "matrix/runner/stack.h"

namespace regather::matrix {

struct RunnerOptions {
  Stack stack;      // its worker is looked for with find_worker() when it names none
  int jobs = 1;     // workers at a time
  Request request;  // device, launcher, model, seed, fault and timeout of every case
};

// Called for every attempt that has ended, in order of completion; records it in the schedule and returns whether to
// go on.
using OnResult = std::function<bool(size_t index, const CaseResult& result, const std::string& line)>;

// Called for every death as it happens, and once more when it is known what it came to.
using OnDeath = std::function<void(const DeathReport&)>;

// What was asked for cannot be finished: a rank of another process is gone.
struct Incomplete : Error {
  explicit Incomplete(const std::string& text) : Error("ranks", text) {}
};

enum class RunEnd { done, stopped, interrupted };

// Runs what the schedule holds. Needs a SignalScope to live in the calling thread. No worker outlives the call.
// Throws Error("worker") when workers die before they begin any case, UsageError when one cannot use what it was given.
RunEnd run_cases(const std::vector<Case>& cases, Schedule& schedule, const RunnerOptions& options,
                 const OnResult& on_result, const OnDeath& on_death);

}  // namespace regather::matrix
