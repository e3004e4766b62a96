// Which rows take part, in the order in which they are worked on, and whether their targets are tokens at all.
#pragma once

#include <cstdint>

#include "kernels/linear_loss.h"

namespace regather::kernels {

struct KeptSummary {
  int32_t kept;        // rows that take part
  int32_t bad;         // rows whose target is neither a token nor ignore_index
  int64_t bad_target;  // one of those
};

struct KeptRows {
  const int64_t* targets = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t vocab = 0;
  int64_t ignore_index = 0;
  int64_t sequences = 1;
  // Sequence by sequence: the first of the first half, the first of the second half, the second of the first half, …
  bool paired = false;

  int32_t* kept = nullptr;         // [rows]: the first summary->kept are row numbers
  int32_t* kept_target = nullptr;  // [rows]: their targets
  int32_t* start = nullptr;        // [sequences + 1]: in kept, of the sequences in their order of work
  KeptSummary* summary = nullptr;
};

void find_kept_rows(const KeptRows& problem, Stream stream);

}  // namespace regather::kernels
