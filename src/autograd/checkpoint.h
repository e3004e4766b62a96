// Activation checkpointing as torch.utils.checkpoint defines it, non-reentrant and reentrant.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "base/error.h"

namespace regather::autograd {

using Block = std::function<at::Tensor(const at::Tensor&)>;

// The recomputed tensors do not match those of the forward: their number, or shape, dtype or device at a position.
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& text) : Error("checkpoint", text) {}
};

struct CheckpointOptions {
  bool early_stop = true;  // non-reentrant: end the recompute at the last tensor that is needed
  bool determinism_check = true;  // non-reentrant: compare shape, dtype and device by position
};

// Runs block(input) keeping placeholders for what autograd saves; the first unpack in backward reruns the block with
// this rank's random state restored. A tensor that requires grad is held detached, one that does not as it is.
// install_engine() must have been called before the first backward of the process.
at::Tensor checkpoint_nonreentrant(const Block& block, const at::Tensor& input, const CheckpointOptions& options = {});

// Runs block(input) without grad; backward reruns it with grad and calls a nested backward. Gives a tensor without
// graph when the input does not require grad, whatever the block's parameters.
at::Tensor checkpoint_reentrant(const Block& block, const at::Tensor& input);

// Installs the engine whose default saved-tensor hooks the checkpoint uses. Once a process, before any backward.
void install_engine();

// True while a graph task runs on this thread, thus also inside a recompute.
bool in_backward();

// The generator that blocks on this thread draw from (dropout): one a rank, so that thread ranks do not share the
// process's default generator.
at::Generator& rank_generator();

}  // namespace regather::autograd
