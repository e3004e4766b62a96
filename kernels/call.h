// One call under way, and the rows of one of its chunks.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/linear_loss.h"
#include "kernels/workspace.h"

namespace regather::kernels {

struct Call {
  Context::State& state;
  const Linear& linear;
  const LossParameters& loss;
  const Results& results;
  const Sequences& sequences;
  const Workspace& space;
  const Options& options;
  Stream stream;
  int64_t kept = 0;
  const int32_t* start = nullptr;  // on the host; of sequences that may not be split

  void mark(const char* stage) const {
    if (options.after_stage) options.after_stage(stage);
  }
};

}  // namespace regather::kernels
