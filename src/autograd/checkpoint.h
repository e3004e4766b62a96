// Activation checkpointing as torch.utils.checkpoint defines it, non-reentrant and reentrant.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"

namespace regather::autograd {

using Block = std::function<at::Tensor(const at::Tensor&)>;

// The recomputed tensors do not match those of the forward: their number, or shape, dtype or device at a position.
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& text) : Error("checkpoint", text) {}
};

struct CheckpointOptions {
  bool early_stop = true;         // end the recompute at the last tensor that backward needs
  bool determinism_check = true;  // compare shape, dtype and device by position
};

// Non-reentrant. Runs block(input) keeping placeholders for what autograd saves; the first unpack in backward reruns
// the block on the same input with this rank's random state restored, and matches what it saves by position. A
// recomputed tensor that requires grad is held detached, one that does not is held as the live object. Nests. A failed
// recompute leaves nothing behind: the same backward may be tried again. install_engine() must have been called before
// the first backward of the process.
at::Tensor checkpoint_nonreentrant(const Block& block, const at::Tensor& input, const CheckpointOptions& options = {});

// Reentrant. Runs block(input) without grad; backward reruns it with grad on a detached input, random state restored,
// and calls a nested backward. When the input does not require grad the result carries no graph, whatever the block's
// parameters: backward never reaches them.
at::Tensor checkpoint_reentrant(const Block& block, const at::Tensor& input);

// How often checkpoint_reentrant ran with grad mode on and an input that does not require grad, on this thread so far.
int64_t reentrant_calls_without_graph();

// True while a graph task runs on this thread, thus also inside a recompute.
bool in_backward();

}  // namespace regather::autograd
