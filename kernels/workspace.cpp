#include "kernels/workspace.h"

#include <algorithm>

#include "kernels/cuda_check.cuh"
#include "kernels/exp_product.h"
#include "kernels/kept_rows.h"
#include "kernels/matmul.h"

namespace regather::kernels {
namespace {

// Whole lines of the cache, and what the copy engine asks for.
constexpr int64_t kPitchMultiple = 64;
constexpr size_t kAlignment = 256;

class Arranger {
 public:
  explicit Arranger(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    return static_cast<T*>(bytes(static_cast<size_t>(count) * sizeof(T)));
  }
  void* bytes(size_t size) {
    void* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

constexpr int64_t kBf16 = 2;

}  // namespace

Sequences sequences_of(const Linear& linear, const LossParameters& loss) {
  return std::visit(
      [&](const auto& parameters) -> Sequences {
        using Loss = std::decay_t<decltype(parameters)>;
        if constexpr (std::is_same_v<Loss, Sft>) {
          return {1, linear.rows, 0};
        } else {
          const int64_t length = parameters.length;
          require(length > 0 && linear.rows % length == 0, "rows are no whole number of sequences");
          const int64_t count = linear.rows / length;
          if constexpr (std::is_same_v<Loss, Grpo>) return {count, length, 0};
          if constexpr (std::is_same_v<Loss, Kto>) return {count, length, 1};
          require(count % 2 == 0, "DPO needs as many rejected sequences as chosen ones");
          return {count, length, 2};
        }
      },
      loss);
}

Workspace lay_out(const Linear& linear, const Sequences& sequences, const Options& options, void* base) {
  Workspace space;
  Arranger arranger(base);
  const int64_t rows = std::max<int64_t>(linear.rows, 1);
  space.summary = arranger.take<KeptSummary>(1);
  space.start = arranger.take<int32_t>(sequences.count + 1);
  space.kept = arranger.take<int32_t>(rows);
  space.kept_target = arranger.take<int32_t>(rows);
  space.negative_shift = arranger.take<float>(rows);
  space.target_exponent = arranger.take<float>(rows);
  space.log_probability = arranger.take<float>(rows);
  space.value = arranger.take<float>(std::max(rows, sequences.count));
  space.coefficient = arranger.take<float>(rows);

  const int64_t group = sequences.together * sequences.length;
  space.chunk_rows = std::min(rows, std::max(options.chunk_rows, group));
  space.pitch = round_up(linear.vocab, kPitchMultiple);
  const int64_t chunk = space.chunk_rows;
  space.gathered = arranger.bytes(static_cast<size_t>(chunk * linear.width * kBf16));
  space.scaled = arranger.bytes(static_cast<size_t>(chunk * linear.width * kBf16));
  space.sum = arranger.take<float>(chunk);
  space.scale = arranger.take<float>(chunk);
  space.partial_sums = arranger.take<float>(divide_up(linear.vocab, kSumColumns) * round_up(chunk, kSumRows));
  space.hidden_product = arranger.take<float>(chunk * linear.width);
  space.exponentials = arranger.bytes(static_cast<size_t>(chunk * space.pitch * kBf16));
  space.product_workspace = arranger.bytes(kProductWorkspace);
  space.bytes = arranger.used();
  return space;
}

}  // namespace regather::kernels
