#include "kernels/linear_loss.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/call.h"
#include "kernels/context.h"
#include "kernels/cuda_check.cuh"
#include "kernels/exp_product.h"
#include "kernels/finish_rows.h"
#include "kernels/kept_rows.h"
#include "kernels/matmul.h"
#include "kernels/plain_loss.h"
#include "kernels/plain_rows.h"
#include "kernels/preference.h"
#include "kernels/target_logits.h"
#include "kernels/workspace.h"

namespace regather::kernels {
namespace {

// Two tiles of the fused product, which work in pairs.
constexpr int64_t kUnitRows = 256;

ChunkRows rows_of(const Call& call, const Span& span) {
  const Workspace& space = call.space;
  ChunkRows chunk;
  chunk.rows = span.count;
  chunk.width = call.linear.width;
  chunk.vocab = call.linear.vocab;
  // The rows as they stand, where none is left out and their order is theirs.
  const bool paired = std::holds_alternative<Dpo>(call.loss);
  const bool in_place = call.kept == call.linear.rows && !paired;
  chunk.hidden = in_place ? static_cast<const char*>(call.linear.hidden) + span.first * chunk.width * 2
                          : static_cast<const char*>(space.gathered);
  chunk.weight = call.linear.weight;
  chunk.bias = call.linear.bias;
  chunk.kept = space.kept + span.first;
  chunk.kept_target = space.kept_target + span.first;
  chunk.negative_shift = space.negative_shift + span.first;
  chunk.target_exponent = space.target_exponent + span.first;
  chunk.partial_sums = space.partial_sums;
  const SumTile tile = sum_tile();
  chunk.partials = divide_up(chunk.vocab, tile.columns);
  chunk.partial_pitch = round_up(span.count, tile.rows);
  chunk.exponentials = space.exponentials;
  chunk.pitch = space.pitch;
  chunk.defect = call.options.defect;
  chunk.sum = space.sum;
  chunk.log_probability = space.log_probability + span.first;
  chunk.all_log_probabilities = call.results.log_probabilities;
  chunk.scale = space.scale;
  chunk.lost = space.lost;
  chunk.scaled = space.scaled;
  if (!in_place && span.count > 0) {
    gather_rows(call.linear.hidden, chunk.kept, span.count, chunk.width, space.gathered, call.stream);
  }
  return chunk;
}

void exponentials_of(const Call& call, const ChunkRows& chunk) {
  ExpProduct product;
  product.rows = chunk.rows;
  product.width = chunk.width;
  product.vocab = chunk.vocab;
  product.hidden = chunk.hidden;
  product.weight = chunk.weight;
  product.bias = chunk.bias;
  product.negative_shift = chunk.negative_shift;
  product.exponentials = chunk.exponentials;
  product.pitch = chunk.pitch;
  product.partial_sums = call.space.partial_sums;
  exp_product(product, call.stream);
}

// From sums to scales.
void finish(const Call& call, const ChunkRows& chunk, const Span& span) {
  const Workspace& space = call.space;
  const auto preference = [&](const auto& loss) {
    if (chunk.rows > 0) sum_rows(chunk, call.stream);
    const SequenceRange range{span.first_sequence, span.sequences, call.sequences.count,
                              space.start,         space.kept,     space.log_probability};
    preference_coefficients(range, loss, space.value, space.coefficient, call.stream);
    if (chunk.rows > 0) scale_rows(chunk, space.coefficient + span.first, call.stream);
  };
  if (const auto* sft = std::get_if<Sft>(&call.loss)) {
    finish_rows(chunk, *sft, space.value + span.first, call.kept, call.stream);
  } else if (const auto* grpo = std::get_if<Grpo>(&call.loss)) {
    finish_rows(chunk, *grpo, space.value + span.first, call.sequences.count, space.start, call.stream);
  } else if (const auto* dpo = std::get_if<Dpo>(&call.loss)) {
    preference(*dpo);
  } else {
    preference(std::get<Kto>(call.loss));
  }
}

void gradients_of(const Call& call, const ChunkRows& chunk, bool accumulate) {
  Products& products = call.state.products;
  Product hidden;
  hidden.rows = chunk.rows;
  hidden.columns = chunk.width;
  hidden.inner = chunk.vocab;
  hidden.left = chunk.exponentials;
  hidden.left_pitch = chunk.pitch;
  hidden.right = chunk.weight;
  hidden.out = call.space.hidden_product;
  products.multiply(hidden, call.options.deterministic, call.space.product_workspace, call.stream);
  call.mark("hidden product");
  scatter_rows(chunk, call.space.hidden_product, call.results.hidden_gradient, call.stream);

  call.mark("scatter");
  Product weight;
  weight.rows = chunk.vocab;
  weight.columns = chunk.width;
  weight.inner = chunk.rows;
  weight.left = chunk.exponentials;
  weight.left_pitch = chunk.pitch;
  weight.left_transposed = true;
  weight.right = chunk.scaled;
  weight.out = call.results.weight_gradient;
  weight.out_dtype = call.results.weight_dtype;
  weight.accumulate = accumulate;
  products.multiply(weight, call.options.deterministic, call.space.product_workspace, call.stream);
  if (call.results.bias_gradient != nullptr) {
    add_bias_gradient(chunk, call.results.bias_gradient, accumulate, call.stream);
  }
}

void zero(const Call& call, void* at, int64_t bytes) {
  check(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), call.stream), "cudaMemsetAsync");
}

// What no chunk will write, where `kept` rows are in chunks.
void clear_results(const Call& call, int64_t kept) {
  const Linear& linear = call.linear;
  if (kept < linear.rows) zero(call, call.results.hidden_gradient, linear.rows * linear.width * size_of(linear.dtype));
  if (call.results.log_probabilities != nullptr && kept < linear.rows) {
    zero(call, call.results.log_probabilities, linear.rows * 4);
  }
  if (kept > 0) return;
  zero(call, call.results.weight_gradient, linear.vocab * linear.width * size_of(call.results.weight_dtype));
  if (call.results.bias_gradient != nullptr) zero(call, call.results.bias_gradient, linear.vocab * 4);
}

// Seeded faults that show before the first chunk.
void seed(const Call& call, std::vector<Span>& spans) {
  if (call.options.defect == Defect::stale_sum) zero(call, call.space.sum, call.space.chunk_rows * 4);
  if (call.options.defect != Defect::lost_chunk || spans.empty()) return;
  spans.pop_back();
  clear_results(call, 0);
  zero(call, call.space.value, std::max(call.linear.rows, call.sequences.count) * 4);
}

// Learns how many rows take part, and their targets' logits.
void find_kept(Call& call) {
  KeptRows rows;
  rows.targets = call.linear.targets;
  rows.rows = call.linear.rows;
  rows.vocab = call.linear.vocab;
  rows.ignore_index = call.linear.ignore_index;
  rows.sequences = call.sequences.count;
  rows.paired = std::holds_alternative<Dpo>(call.loss);
  rows.kept = call.space.kept;
  rows.kept_target = call.space.kept_target;
  rows.start = call.space.start;
  rows.summary = call.space.summary;
  find_kept_rows(rows, call.stream);
  HostCounts& counts = call.state.counts;
  counts.fetch(call.space, call.sequences.together == 0 ? 0 : call.sequences.count + 1, call.stream);
  // Enqueued before the wait, so that the device has work while the host learns how much there is.
  if (call.linear.rows > 0 && call.space.logits == nullptr) {
    target_logits(
        {call.linear.rows, call.linear.width, call.linear.hidden, call.linear.weight, call.linear.bias, call.space.kept,
         call.space.kept_target, call.space.summary, call.space.negative_shift, call.space.target_exponent},
        call.stream);
  }
  counts.wait();
  const KeptSummary& summary = counts.summary();
  require(summary.bad == 0, "linear_loss: " + std::to_string(summary.bad) + " targets are no tokens, one of them " +
                                std::to_string(summary.bad_target));
  call.kept = summary.kept;
  call.start = counts.start();
}

void check_sizes(const Linear& linear) {
  require(linear.rows >= 0 && linear.width > 0 && linear.vocab > 0, "linear_loss: sizes must be positive");
  require(linear.rows < INT32_MAX && linear.vocab < INT32_MAX && linear.width < INT32_MAX,
          "linear_loss: sizes must fit 32 bits");
  const auto aligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; };
  require(aligned(linear.hidden) && aligned(linear.weight),
          "linear_loss: hidden states and weight must begin at multiples of 16 bytes");
}

void check_results(const Linear& linear, const Results& results) {
  require(results.weight_dtype == Dtype::fp32 || results.weight_dtype == linear.dtype,
          "linear_loss: the weight's gradient is fp32 or of the weight's dtype");
  require(results.loss != nullptr && (results.hidden_gradient != nullptr || linear.rows == 0) &&
              results.weight_gradient != nullptr,
          "linear_loss: loss and gradients have no place to go");
  require((linear.bias == nullptr) == (results.bias_gradient == nullptr),
          "linear_loss: bias and its gradient go together");
}

}  // namespace

Context::Context() : state_(std::make_unique<State>()) {}
Context::~Context() = default;

void linear_loss(Context& context, const Linear& linear, const LossParameters& loss, const Results& results,
                 const Options& options, void* workspace, Stream stream) {
  check_sizes(linear);
  check_results(linear, results);
  const Sequences sequences = sequences_of(linear, loss);
  const Workspace space = lay_out(linear, sequences, options, workspace);
  Call call{context.state(), linear, loss, results, sequences, space, options, stream};

  find_kept(call);
  std::vector<Span> spans = spans_of(call.sequences, call.kept, call.start, call.space.chunk_rows, kUnitRows);
  clear_results(call, call.kept);
  seed(call, spans);
  call.mark("begin");
  bool accumulate = false;
  for (const Span& span : spans) {
    if (space.logits != nullptr) {
      plain_chunk(call, span, accumulate);
      accumulate = accumulate || span.count > 0;
      continue;
    }
    const ChunkRows chunk = rows_of(call, span);
    if (span.count > 0) exponentials_of(call, chunk);
    call.mark("exponentials");
    finish(call, chunk, span);
    call.mark("finish");
    if (span.count == 0) continue;
    gradients_of(call, chunk, accumulate);
    call.mark("weight product");
    accumulate = true;
  }
  const int64_t values = sequences.together == 0 ? call.kept : sequences.count / sequences.together;
  sum_values(space.value, values, results.loss, stream);
}

void log_probabilities(Context& context, const Linear& linear, float* out, void* workspace, Stream stream) {
  check_sizes(linear);
  const LossParameters loss = Sft{};
  const Sequences sequences = sequences_of(linear, loss);
  const Workspace space = lay_out_sums(linear, plain_path(linear, {}), workspace);
  Results results;
  results.log_probabilities = out;
  const Options options;
  Call call{context.state(), linear, loss, results, sequences, space, options, stream};
  find_kept(call);
  if (call.kept < linear.rows) {
    check(cudaMemsetAsync(out, 0, static_cast<size_t>(linear.rows) * sizeof(float), stream), "cudaMemsetAsync");
  }
  for (const Span& span : spans_of(call.sequences, call.kept, call.start, call.space.chunk_rows, kUnitRows)) {
    if (space.logits != nullptr) {
      plain_log_probabilities(call, span);
      continue;
    }
    const ChunkRows chunk = rows_of(call, span);
    exponentials_of(call, chunk);
    sum_rows(chunk, stream);
  }
}

}  // namespace regather::kernels
