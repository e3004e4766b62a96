// What a call needs beside its arguments, laid out in one allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear_loss.h"
#include "kernels/spans.h"

namespace regather::kernels {

struct KeptSummary;

// Whether a call takes the plain path.
bool plain_path(const Linear& linear, const Options& options);

struct Workspace {
  // Of the whole call.
  KeptSummary* summary = nullptr;
  int32_t* start = nullptr;          // [sequences + 1]
  int32_t* kept = nullptr;           // [N]
  int32_t* kept_target = nullptr;    // [N]
  float* negative_shift = nullptr;   // [N]
  float* target_exponent = nullptr;  // [N]
  float* log_probability = nullptr;  // [N]
  float* value = nullptr;            // [max(N, sequences)]
  float* coefficient = nullptr;      // [N]
  // Of a chunk of `chunk_rows` rows.
  int64_t chunk_rows = 0;
  int64_t pitch = 0;         // of exponentials' rows
  void* gathered = nullptr;  // [chunk_rows, H] bf16
  void* scaled = nullptr;    // [chunk_rows, H] bf16
  float* sum = nullptr;      // [chunk_rows]
  float* scale = nullptr;    // [chunk_rows]
  float* lost = nullptr;     // [chunk_rows]
  float* partial_sums = nullptr;
  float* hidden_product = nullptr;  // [chunk_rows, H] fp32
  void* exponentials = nullptr;     // [chunk_rows, pitch] bf16
  void* product_workspace = nullptr;
  // Of the plain path: its gradient by the logits takes the exponentials' place.
  float* logits = nullptr;   // [chunk_rows, V]
  float* factors = nullptr;  // [3]

  size_t bytes = 0;
};

// `base` may be null, to learn the size.
Workspace lay_out(const Linear& linear, const Sequences& sequences, const Options& options, void* base);
// Only what log-probabilities need.
Workspace lay_out_sums(const Linear& linear, bool plain, void* base);

}  // namespace regather::kernels
