// How a batch is cut into chunks of rows.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/problem.h"

namespace regather::kernels {

// Sequences in the batch, 1 where the loss has none; how many of them belong together and may not be split.
struct Sequences {
  int64_t count = 1;
  int64_t length = 0;
  int64_t together = 0;  // 0: rows may be split anywhere
};
Sequences sequences_of(const Linear& linear, const LossParameters& loss);

// Rows [first, first + count) of the kept ones; of unsplittable losses also which sequences those are.
struct Span {
  int64_t first = 0;
  int64_t count = 0;
  int64_t first_sequence = 0;
  int64_t sequences = 0;
};

// Of `kept` rows, at most `most` in a chunk, which is that many units of `unit` rows. `start` [count + 1]: where the
// sequences begin in their order of work; whole ones that belong together are never split.
std::vector<Span> spans_of(const Sequences& sequences, int64_t kept, const int32_t* start, int64_t most, int64_t unit);

}  // namespace regather::kernels
