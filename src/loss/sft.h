// Supervised fine-tuning: mean next-token cross entropy over the rank's valid tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "loss/batch.h"
#include "loss/policy.h"
#include "model/layers.h"

namespace regather::loss {

// Rows of hidden states a chunk; truth-table.md's texts have 16 for the fused loss and 8 for the chunked one.
constexpr int64_t kFusedRows = 16;
constexpr int64_t kChunkedRows = 8;

// From the formula. logits [B, T, V], labels [B, T]: position t is scored by the logits at t - 1.
at::Tensor sft_eager(const at::Tensor& logits, const at::Tensor& labels);

// hidden [B, T, H]; reads the head's weight and bias directly, once, inside `scope`.
at::Tensor sft_fused(const at::Tensor& hidden, model::Linear& head, const at::Tensor& labels, HeadScope& scope);

// hidden [B, T, H]; drops masked rows, then a non-reentrant checkpoint a chunk with the head's product inside it:
// forward and recompute enter `scope` anew each time.
at::Tensor sft_chunked(const at::Tensor& hidden, model::Linear& head, const at::Tensor& labels, HeadScope& scope);

}  // namespace regather::loss
