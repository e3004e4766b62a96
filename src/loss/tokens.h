// Which hidden state predicts which token, and the log-probabilities of the predicted tokens.
#pragma once

#include <ATen/core/Tensor.h>

namespace regather::loss {

// The states that predict: states [B, T, C] -> [B, T - 1, C].
at::Tensor predicting(const at::Tensor& states);

// What they predict: labels [B, T] int64 -> [B, T - 1], kIgnore where masked.
at::Tensor predicted(const at::Tensor& labels);

// The same as rows: [B * (T - 1), C] and [B * (T - 1)].
at::Tensor predicting_rows(const at::Tensor& states);
at::Tensor predicted_rows(const at::Tensor& labels);

// log softmax(logits)[label] of each predicted token, 0 where masked. logits [B, T, V], labels [B, T] -> [B, T - 1] of
// the logits' dtype, float32 at least. From the formula, with autograd's gradient.
at::Tensor token_log_probabilities(const at::Tensor& logits, const at::Tensor& labels);

// Their sum over each sequence: [B].
at::Tensor sequence_log_probabilities(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace regather::loss
