// Fused linear layer and loss on the CPU: the contract of kernels/linear_loss.h, its pointers on the host, any
// alignment. The vocabulary is passed over twice, a tile at a time and each thread its own part of it: logits,
// exponentials, their sums and the hidden states' gradient; then, with the losses' coefficients, the weight's gradient.
#pragma once

#include <cstdint>

#include "kernels/problem.h"

namespace regather::kernels::cpu {

// What multiplies. `best` is the first of these that the processor has.
enum class Unit { best, amx, avx512, avx2, plain };

struct Options {
  // Rows of a chunk at most, of which the exponentials exist at a time, in float32; whole sequences as in
  // kernels/linear_loss.h. They are kept in the weight's gradient where they fit, in the first chunk.
  int64_t chunk_rows = 256;
  int threads = 0;  // 0: as many as there are processors; fewer where there is little to do
  Unit unit = Unit::best;
  Defect defect = Defect::none;
};

bool has(Unit unit);

// Throws Error on a target outside [0, V) that is not ignore_index. The same bits on each call with the same number of
// threads.
void linear_loss(const Linear& linear, const LossParameters& loss, const Results& results, const Options& options);

// As kernels/linear_loss.h has it. out [N].
void log_probabilities(const Linear& linear, float* out, const Options& options);

}  // namespace regather::kernels::cpu
