// What a fused linear loss is given and gives, on any device: pointers and sizes.
#pragma once

#include <cstdint>
#include <variant>

namespace regather::kernels {

enum class Dtype { bf16, fp16, fp32 };
constexpr int64_t size_of(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }

// All matrices are dense and row-major; on a GPU hidden and weight begin at multiples of 16 bytes.
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

// Seeded faults: what a pass does wrong, so that tests can show that it would be noticed.
enum class Defect {
  none,
  lost_chunk,        // the last chunk of rows is left out
  counted_pad,       // each row's sum has a pad of kCountedPad logits of 0 (defect.h) beyond the vocabulary
  unpatched_target,  // the gradient by the logits lacks the target's 1
  scaled_twice,      // the rows' coefficients are applied twice
  stale_sum,         // from the second chunk on a row's sum starts at that of the chunk before
};

}  // namespace regather::kernels
