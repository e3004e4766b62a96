// Fused linear layer and loss on a GPU, forward and backward in one pass over the tokens: logits = hidden weight^T +
// bias exist one chunk of rows at a time, and only as exp(logit - shift); the loss and the gradients of hidden states,
// weight and bias come out together. No torch: pointers, sizes and a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>

struct CUstream_st;

namespace regather::kernels {

using Stream = CUstream_st*;

enum class Dtype { bf16, fp16, fp32 };

// Device pointers, hidden and weight at multiples of 16 bytes; all matrices are dense and row-major.
struct Linear {
  int64_t rows = 0;                  // N
  int64_t width = 0;                 // H
  int64_t vocab = 0;                 // V
  Dtype dtype = Dtype::bf16;         // of hidden, weight and bias
  const void* hidden = nullptr;      // [N, H]
  const void* weight = nullptr;      // [V, H]
  const void* bias = nullptr;        // [V], or null
  const int64_t* targets = nullptr;  // [N]; rows with ignore_index take no part and cost nothing
  int64_t ignore_index = -100;
};

// Mean over the rows that take part of -log p(target).
struct Sft {};

// The rows are sequences of `length` rows each, N = B * length. Given per token (one float a row) where a name says
// log_probabilities; masked rows' values are not read.
struct Grpo {
  int64_t length = 0;
  const float* advantages = nullptr;                   // [B]
  const float* old_log_probabilities = nullptr;        // [N]; null: the policy's own, so that the ratio is 1
  const float* reference_log_probabilities = nullptr;  // [N]; null: no KL term
  float epsilon_low = 0.2F;
  float epsilon_high = 0.2F;
  float beta = 0.04F;
};

// The first half of the sequences chosen, the second rejected, in the same order.
struct Dpo {
  int64_t length = 0;
  const float* reference_log_probabilities = nullptr;  // [N]
  float beta = 0.1F;
};

struct Kto {
  int64_t length = 0;
  const float* reference_log_probabilities = nullptr;  // [N]
  const bool* desirable = nullptr;                     // [B]
  const float* kl = nullptr;                           // scalar
  float beta = 0.1F;
};

using LossParameters = std::variant<Sft, Grpo, Dpo, Kto>;

struct Results {
  float* loss = nullptr;            // scalar
  void* hidden_gradient = nullptr;  // [N, H], of linear's dtype
  void* weight_gradient = nullptr;  // [V, H] of weight_dtype: linear's own or fp32
  Dtype weight_dtype = Dtype::bf16;
  float* bias_gradient = nullptr;      // [V], or null
  float* log_probabilities = nullptr;  // [N], or null: of the targets, 0 where masked
};

struct Options {
  // Rows of a chunk at most. Whole sequences (DPO: pairs) of Dpo and Kto are never split: a chunk is then as large as
  // the longest of them, if that is more.
  int64_t chunk_rows = 1024;
  // For measurements: called after each stage has been enqueued.
  std::function<void(const char* stage)> after_stage;
  // Not the fused product but logits in fp32, one chunk at a time: slower, for any dtype, width and device; used
  // without being asked for where the fused product cannot be.
  bool plain = false;
  // The same bits on each call with the same arguments on the same device.
  bool deterministic = false;
};

// What outlives a call: library handles, chosen algorithms, one page of pinned memory. Not for use by two threads at
// once; belongs to the device that is current when it is made.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// Bytes that linear_loss needs for such a call, whatever is masked. Reads no device memory.
size_t workspace_bytes(const Linear& linear, const LossParameters& loss, const Options& options);

// The most rows a chunk may have if the workspace is to fit into `bytes`; 0 if none.
int64_t chunk_rows_within(const Linear& linear, const LossParameters& loss, size_t bytes);

// Enqueues on `stream` and waits once, early, for the number of rows that take part. Throws Error on a target outside
// [0, V) that is not ignore_index. The workspace is aligned to 256 bytes.
void linear_loss(Context& context, const Linear& linear, const LossParameters& loss, const Results& results,
                 const Options& options, void* workspace, Stream stream);

// log p(target) of each row, 0 where masked: what losses are given of a reference model. out [N]. One product, of which
// only the sums are kept; the weight needs no gradient. Otherwise as linear_loss.
void log_probabilities(Context& context, const Linear& linear, float* out, void* workspace, Stream stream);
size_t log_probabilities_workspace_bytes(const Linear& linear);

}  // namespace regather::kernels
