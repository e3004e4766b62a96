// `regather matrix run`: from a selection to the files of the output folder and the exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "matrix/judge/conclusion.h"
#include "matrix/plan/plan.h"
#include "matrix/results/document.h"
#include "matrix/results/verdict.h"
#include "matrix/runner/ranks.h"
#include "matrix/runner/runner.h"
#include "matrix/runner/schedule.h"

namespace regather::matrix {

struct RunOptions {
  std::optional<Ranks> ranks;  // this process is rank 0 of these, which run the cases together
  Selection selection;
  RunnerOptions runner;
  SchedulePolicy policy;
  std::string out = "out";
  Rules rules;
  bool resume = false;
  bool rerun_failed = false;  // only what is red by the lines in the output folder
  bool shuffle = false;       // the order of execution, by runner.request.seed; results stay in the plan's order
  bool stop_at_red = false;   // -x: what has not run by then is notrun
  bool dry_run = false;       // print the ids that would run
  bool lines = false;         // --format jsonl: each line on standard output too
  bool quiet = false;         // no table and no red cases at the end
};

// What a run came to: its exit code, and every case of its document unless it was interrupted.
struct Ran {
  Exit exit = Exit::green;
  std::vector<DocumentCase> cases;
  double seconds = 0;
};

// Throws UsageError and Error.
Ran run(const RunOptions& options);

}  // namespace regather::matrix
