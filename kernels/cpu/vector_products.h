// The products by a vector unit: blocks of Rows x 2 vectors are summed in registers; the left operand is broadcast, so
// neither the weight nor the exponentials are ever rearranged.
#pragma once

#include <utility>

#include "kernels/cpu/vector.h"

namespace regather::kernels::cpu {
namespace {

// out[r][c] (+)= sum over k of left[r * left_row + k * left_step] right[k * right_step + c].
struct Block {
  int64_t inner;
  const float* left;
  int64_t left_row;
  int64_t left_step;
  const float* right;
  int64_t right_step;
  float* out;
  int64_t out_row;
  bool add;
};

template <int Lanes, int Rows>
void multiply(const Block& block) {
  using V = Vector<Lanes>;
  typename V::Float sum[Rows][2] = {};
  for (int64_t k = 0; k < block.inner; ++k) {
    const float* right = block.right + k * block.right_step;
    const auto low = V::load(right);
    const auto high = V::load(right + Lanes);
    const float* left = block.left + k * block.left_step;
#pragma GCC unroll 14
    for (int r = 0; r < Rows; ++r) {
      const auto factor = V::all(left[r * block.left_row]);
      sum[r][0] += factor * low;
      sum[r][1] += factor * high;
    }
  }
  for (int r = 0; r < Rows; ++r) {
    float* out = block.out + r * block.out_row;
    V::store(out, block.add ? V::load(out) + sum[r][0] : sum[r][0]);
    V::store(out + Lanes, block.add ? V::load(out + Lanes) + sum[r][1] : sum[r][1]);
  }
}

template <int Lanes, int Rows>
class VectorProducts final : public Products {
 public:
  explicit VectorProducts(const ChunkSize& size)
      : size_(size),
        pitch_(padded(size.rows)),
        width_(padded(size.width)),
        hidden_(pitch_ * size.width),
        rows_(pitch_ * width_),
        gradient_(pitch_ * width_),
        weight_(size.width == width_ ? 0 : kTile * width_) {}

  void set_hidden(const float* x) override {
    // Panels of two vectors of rows: [panel][H][2 Lanes].
    for (int64_t row = 0; row < size_.rows; ++row) {
      float* panel = hidden_.get() + row / kColumns * size_.width * kColumns + row % kColumns;
      for (int64_t h = 0; h < size_.width; ++h) panel[h * kColumns] = x[row * size_.width + h];
    }
    gradient_.clear(pitch_ * width_);
  }

  void logits(const float* weight, int64_t count, float* out) override {
    given_ = weight;
    for (int64_t panel = 0; panel < pitch_ / kColumns; ++panel) {
      const float* right = hidden_.get() + panel * size_.width * kColumns;
      rows(count, {size_.width, weight, size_.width, 1, right, kColumns, out + panel * kColumns, pitch_, false});
    }
  }

  void exponentials(float* values, int64_t count, const float* shift, float* sums) override {
    Vector<Lanes>::exponentials(values, count, pitch_, shift, sums);
  }

  void add_hidden_gradient(const float* values, int64_t count) override {
    const float* weight = given_;
    if (size_.width != width_) {
      for (int64_t v = 0; v < count; ++v) {
        __builtin_memcpy(weight_.get() + v * width_, given_ + v * size_.width, static_cast<size_t>(size_.width) * 4);
      }
      weight = weight_.get();
    }
    for (int64_t h = 0; h < width_; h += kColumns) {
      rows(size_.rows, {count, values, 1, pitch_, weight + h, width_, gradient_.get() + h, width_, true});
    }
  }

  const float* hidden_gradient() const override { return gradient_.get(); }

  void set_rows(const float* x) override {
    // Panels of two vectors of columns: [panel][C][2 Lanes].
    for (int64_t row = 0; row < size_.rows; ++row) {
      for (int64_t h = 0; h < size_.width; ++h) {
        rows_.get()[(h / kColumns * size_.rows + row) * kColumns + h % kColumns] = x[row * size_.width + h];
      }
    }
  }

  void weight_gradient(const float* values, int64_t count, float* out) override {
    for (int64_t h = 0; h < width_; h += kColumns) {
      const float* right = rows_.get() + h * size_.rows;
      rows(count, {size_.rows, values, pitch_, 1, right, kColumns, out + h, width_, false});
    }
  }

 private:
  static constexpr int kColumns = 2 * Lanes;
  static_assert(kPad % kColumns == 0);

  template <int... R>
  static void last(int64_t count, const Block& block, std::integer_sequence<int, R...>) {
    static_cast<void>(((count == R + 1 && (multiply<Lanes, R + 1>(block), true)) || ...));
  }

  // `count` rows of left and out.
  static void rows(int64_t count, Block block) {
    for (; count >= Rows; count -= Rows) {
      multiply<Lanes, Rows>(block);
      block.left += Rows * block.left_row;
      block.out += Rows * block.out_row;
    }
    last(count, block, std::make_integer_sequence<int, Rows - 1>());
  }

  ChunkSize size_;
  int64_t pitch_;
  int64_t width_;
  Array<float> hidden_;
  Array<float> rows_;
  Array<float> gradient_;
  Array<float> weight_;
  const float* given_ = nullptr;
};

}  // namespace
}  // namespace regather::kernels::cpu
