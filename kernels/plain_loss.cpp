#include "kernels/plain_loss.h"

#include "kernels/plain_rows.h"
#include "kernels/preference.h"

namespace regather::kernels {
namespace {

PlainRows rows_of(const Call& call, const Span& span) {
  const Workspace& space = call.space;
  PlainRows chunk;
  chunk.dtype = call.linear.dtype;
  chunk.rows = span.count;
  chunk.width = call.linear.width;
  chunk.vocab = call.linear.vocab;
  chunk.logits = space.logits;
  chunk.bias = call.linear.bias;
  chunk.hidden = space.gathered;
  chunk.kept = space.kept + span.first;
  chunk.kept_target = space.kept_target + span.first;
  chunk.log_probability = space.log_probability + span.first;
  chunk.all_log_probabilities = call.results.log_probabilities;
  chunk.by_logits = space.exponentials;
  chunk.defect = call.options.defect;
  chunk.stale_sum = chunk.defect == Defect::stale_sum ? space.sum : nullptr;
  chunk.factors = space.factors;
  chunk.scaled = space.scaled;
  return chunk;
}

void score(const Call& call, const PlainRows& chunk) {
  plain_gather(call.linear, chunk.kept, chunk.rows, call.space.gathered, call.stream);
  Product logits;
  logits.in_dtype = chunk.dtype;
  logits.rows = chunk.rows;
  logits.columns = chunk.vocab;
  logits.inner = chunk.width;
  logits.left = chunk.hidden;
  logits.left_pitch = chunk.width;
  logits.right = call.linear.weight;
  logits.right_transposed = true;
  logits.out = call.space.logits;
  call.state.products.multiply(logits, true, call.space.product_workspace, call.stream);
  plain_rows(chunk, call.stream);
}

void find_coefficients(const Call& call, const PlainRows& chunk, const Span& span) {
  const Workspace& space = call.space;
  float* coefficient = space.coefficient + span.first;
  const SequenceRange range{span.first_sequence, span.sequences, call.sequences.count,
                            space.start,         space.kept,     space.log_probability};
  if (const auto* sft = std::get_if<Sft>(&call.loss)) {
    plain_coefficients(chunk, *sft, space.value + span.first, coefficient, call.kept, call.stream);
  } else if (const auto* grpo = std::get_if<Grpo>(&call.loss)) {
    plain_coefficients(chunk, *grpo, space.value + span.first, coefficient, call.sequences.count, space.start,
                       call.stream);
  } else if (const auto* dpo = std::get_if<Dpo>(&call.loss)) {
    preference_coefficients(range, *dpo, space.value, space.coefficient, call.stream);
  } else {
    preference_coefficients(range, std::get<Kto>(call.loss), space.value, space.coefficient, call.stream);
  }
}

}  // namespace

void plain_chunk(const Call& call, const Span& span, bool accumulate) {
  const PlainRows chunk = rows_of(call, span);
  if (span.count > 0) score(call, chunk);
  find_coefficients(call, chunk, span);
  if (span.count == 0) return;
  const Workspace& space = call.space;
  float* coefficient = space.coefficient + span.first;
  if (chunk.defect == Defect::scaled_twice) plain_scale_twice(coefficient, chunk.rows, call.stream);
  plain_scale(chunk, coefficient, call.stream);

  Product hidden;
  hidden.in_dtype = chunk.dtype;
  hidden.rows = chunk.rows;
  hidden.columns = chunk.width;
  hidden.inner = chunk.vocab;
  hidden.left = chunk.by_logits;
  hidden.left_pitch = chunk.vocab;
  hidden.right = call.linear.weight;
  hidden.out = space.hidden_product;
  call.state.products.multiply(hidden, true, space.product_workspace, call.stream);
  plain_scatter(chunk, coefficient, space.hidden_product, call.results.hidden_gradient, call.stream);

  Product weight;
  weight.in_dtype = chunk.dtype;
  weight.rows = chunk.vocab;
  weight.columns = chunk.width;
  weight.inner = chunk.rows;
  weight.left = chunk.by_logits;
  weight.left_pitch = chunk.vocab;
  weight.left_transposed = true;
  weight.right = chunk.scaled;
  weight.out = call.results.weight_gradient;
  weight.out_dtype = call.results.weight_dtype;
  weight.accumulate = accumulate;
  weight.alpha = space.factors;
  weight.beta = space.factors + (accumulate ? 2 : 1);
  call.state.products.multiply(weight, true, space.product_workspace, call.stream);
  if (call.results.bias_gradient != nullptr) {
    plain_bias_gradient(chunk, coefficient, call.results.bias_gradient, accumulate, call.stream);
  }
}

void plain_log_probabilities(const Call& call, const Span& span) {
  if (span.count > 0) score(call, rows_of(call, span));
}

}  // namespace regather::kernels
