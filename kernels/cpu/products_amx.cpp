// By AMX, whose units multiply bfloat16 and add in float32, at many times the vector unit's rate. A float32 number is
// the sum of three bfloat16 numbers (3 * 8 bits of mantissa), so that a product of float32 matrices is the sum of six
// of bfloat16 ones, less terms of 2^-24: as good as float32's own, and still several times as fast. Bfloat16 values are
// one part; exponentials beside them are cut into two. Compiled for AMX; runs only where the processor has it.
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "kernels/cpu/vector.h"

namespace regather::kernels::cpu {
namespace {

using Half = uint16_t;      // the bits of a bfloat16
constexpr int kEdge = 16;   // rows of a tile, and its columns in float32
constexpr int kDepth = 32;  // what one instruction sums over
constexpr int64_t kTileHalves = kEdge * kDepth;

// Sixteen floats as the sum of three bfloat16 numbers, each rounded to the nearest, in the upper halves.
struct Parts {
  __m512i part[3];

  explicit Parts(__m512 x) {
    for (__m512i& bits : part) {
      const __m512i raw = _mm512_castps_si512(x);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(raw, 16), _mm512_set1_epi32(1));
      const __m512i up = _mm512_add_epi32(_mm512_add_epi32(raw, _mm512_set1_epi32(0x7fff)), odd);
      bits = _mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
      x = _mm512_sub_ps(x, _mm512_castsi512_ps(bits));
    }
  }
  // Sixteen bfloat16 numbers.
  void store(int which, Half* at) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(_mm512_srli_epi32(part[which], 16)));
  }
  // Each beside that of `next`, as the right operand of a product has two that follow each other in the sum.
  void store_pairs(int which, const Parts& next, Half* at) const {
    _mm512_storeu_si512(at, _mm512_or_si512(_mm512_srli_epi32(part[which], 16), next.part[which]));
  }
};

void transpose(const float* from, int64_t pitch, __m512 (&out)[kEdge]) {
  __m512i a[kEdge];
  for (int i = 0; i < kEdge; ++i) a[i] = _mm512_castps_si512(_mm512_loadu_ps(from + i * pitch));
  __m512i b[kEdge];
  for (int i = 0; i < kEdge; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < kEdge; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  // a[4 g + j] holds columns j, 4 + j, 8 + j, 12 + j of rows 4 g to 4 g + 3, a quarter each.
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xdd);
    out[j] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(low01, low23, 0x88));
    out[8 + j] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(low01, low23, 0xdd));
    out[4 + j] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(high01, high23, 0x88));
    out[12 + j] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}

// Tiles of a matrix, in rows of tiles, each of them 1 KB; parts follow each other.
struct Operand {
  const Half* tiles;
  int64_t part;    // from a part to the next
  int64_t across;  // from a row (left) or column (right) of tiles to the next
  int64_t along;   // from a tile to the next in the sum
};

// The compiler does not know that the tiles' instructions read memory: what was written before must be there.
void written() { asm volatile("" : : : "memory"); }

// Two by two tiles of out (+)= left right, over `steps` tiles of the sum; of the parts' products those that matter.
template <int LeftParts, int RightParts>
void multiply(const Operand& left, const Operand& right, int64_t steps, float* out, int64_t pitch, bool add) {
  constexpr int kOrders = LeftParts > RightParts ? LeftParts : RightParts;
  const auto stride = static_cast<size_t>(pitch) * 4;
  float* below = out + kEdge * pitch;
  written();
  if (add) {
    _tile_loadd(0, out, stride);
    _tile_loadd(1, out + kEdge, stride);
    _tile_loadd(2, below, stride);
    _tile_loadd(3, below + kEdge, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; ++step) {
    const Half* l = left.tiles + step * left.along;
    const Half* r = right.tiles + step * right.along;

    for (int i = 0; i < LeftParts; ++i) {
      _tile_loadd(4, l + i * left.part, 64);
      _tile_loadd(5, l + i * left.part + left.across, 64);

      for (int j = 0; j < RightParts && i + j < kOrders; ++j) {
        _tile_loadd(6, r + j * right.part, 64);
        _tile_loadd(7, r + j * right.part + right.across, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  _tile_stored(0, out, stride);
  _tile_stored(1, out + kEdge, stride);
  _tile_stored(2, below, stride);
  _tile_stored(3, below + kEdge, stride);
}

// The tiles' shape, for the thread that has it.
class TileShape {
 public:
  TileShape() {
    alignas(64) std::array<uint8_t, 64> shape{};
    shape[0] = 1;
    for (size_t tile = 0; tile < 8; ++tile) {
      shape[16 + 2 * tile] = 64;
      shape[48 + tile] = kEdge;
    }
    asm volatile("" : : "r"(shape.data()) : "memory");
    _tile_loadconfig(shape.data());
  }
  ~TileShape() { _tile_release(); }
  TileShape(const TileShape&) = delete;
  TileShape& operator=(const TileShape&) = delete;
};

// `count` floats, then zeros.
__m512 load(const float* at, int64_t count) {
  return count >= kEdge ? _mm512_loadu_ps(at)
                        : _mm512_maskz_loadu_ps(static_cast<__mmask16>(count <= 0 ? 0 : (1U << count) - 1), at);
}

// XParts: of hidden states and weight; EParts: of exponentials.
template <int XParts, int EParts>
class AmxProducts final : public Products {
 public:
  explicit AmxProducts(const ChunkSize& size)
      : size_(size),
        pitch_(padded(size.rows)),
        width_(padded(size.width)),
        hidden_(XParts * pitch_ * width_),
        rows_(XParts * pitch_ * width_),
        weight_left_(XParts * kTile * width_),
        weight_right_(XParts * kTile * width_),
        values_(EParts * kTile * pitch_),
        gradient_(pitch_ * width_) {}

  void set_hidden(const float* x) override {
    // Right operand of the logits: the sum goes over H, columns are rows of x.
    for (int64_t row = 0; row < pitch_; row += kEdge) {
      for (int64_t h = 0; h < width_; h += kEdge) {
        alignas(64) float block[kEdge][kEdge] = {};
        for (int64_t i = 0; i < kEdge && row + i < size_.rows; ++i) {
          _mm512_store_ps(block[i], load(x + (row + i) * size_.width + h, size_.width - h));
        }
        __m512 columns[kEdge];
        transpose(block[0], kEdge, columns);
        for (int64_t i = 0; i < kEdge; i += 2) {
          Half* at = hidden_.get() + (row / kEdge * (width_ / kDepth) + h / kDepth) * kTileHalves +
                     (h % kDepth + i) / 2 * kDepth;
          store_pairs<XParts>(columns[i], columns[i + 1], at, pitch_ * width_);
        }
      }
    }
    gradient_.clear(pitch_ * width_);
  }

  void logits(const float* weight, int64_t count, float* out) override {
    cut_weight(weight, count);
    const TileShape shape;
    const Operand left{weight_left_.get(), kTile * width_, width_ / kDepth * kTileHalves, kTileHalves};
    const Operand right{hidden_.get(), pitch_ * width_, width_ / kDepth * kTileHalves, kTileHalves};
    for (int64_t row = 0; row < pitch_; row += kPad) {
      for (int64_t v = 0; v < count; v += kPad) {
        whole_rows(count - v, out + v * pitch_ + row, pitch_, [&](float* to, int64_t pitch) {
          multiply<XParts, XParts>(at(left, v), at(right, row), width_ / kDepth, to, pitch, false);
        });
      }
    }
  }

  void exponentials(float* values, int64_t count, const float* shift, float* sums) override {
    Vector<16>::exponentials(values, count, pitch_, shift, sums);
  }

  void add_hidden_gradient(const float* values, int64_t count) override {
    // Left operand: rows are rows of x, the sum goes over v.
    const int64_t depth = padded(count);
    for (int64_t row = 0; row < pitch_; row += kEdge) {
      for (int64_t v = 0; v < depth; v += kEdge) {
        __m512 rows[kEdge];
        if (v + kEdge <= count) {
          transpose(values + v * pitch_ + row, pitch_, rows);
        } else {
          alignas(64) float block[kEdge][kEdge] = {};
          for (int64_t i = 0; v + i < count; ++i) {
            _mm512_store_ps(block[i], _mm512_loadu_ps(values + (v + i) * pitch_ + row));
          }
          transpose(block[0], kEdge, rows);
        }
        for (int64_t i = 0; i < kEdge; ++i) {
          Half* to =
              values_.get() + (row / kEdge * (kTile / kDepth) + v / kDepth) * kTileHalves + i * kDepth + v % kDepth;
          store<EParts>(rows[i], to, kTile * pitch_);
        }
      }
    }
    const TileShape shape;
    const Operand left{values_.get(), kTile * pitch_, kTile / kDepth * kTileHalves, kTileHalves};
    const Operand right{weight_right_.get(), kTile * width_, kTile / kDepth * kTileHalves, kTileHalves};
    for (int64_t h = 0; h < width_; h += kPad) {
      for (int64_t row = 0; row < pitch_; row += kPad) {
        multiply<EParts, XParts>(at(left, row), at(right, h), depth / kDepth, gradient_.get() + row * width_ + h,
                                 width_, true);
      }
    }
  }

  const float* hidden_gradient() const override { return gradient_.get(); }

  void set_rows(const float* x) override {
    // Right operand of the weight's gradient: the sum goes over rows of x.
    for (int64_t row = 0; row < pitch_; row += 2) {
      for (int64_t h = 0; h < width_; h += kEdge) {
        const auto part = [&](int64_t i) {
          return i < size_.rows ? load(x + i * size_.width + h, size_.width - h) : _mm512_setzero_ps();
        };
        Half* to =
            rows_.get() + (h / kEdge * (pitch_ / kDepth) + row / kDepth) * kTileHalves + row % kDepth / 2 * kDepth;
        store_pairs<XParts>(part(row), part(row + 1), to, pitch_ * width_);
      }
    }
  }

  void weight_gradient(const float* values, int64_t count, float* out) override {
    for (int64_t v = 0; v < padded(count); ++v) {
      for (int64_t row = 0; row < pitch_; row += kEdge) {
        Half* to = values_.get() + (v / kEdge * (pitch_ / kDepth) + row / kDepth) * kTileHalves + v % kEdge * kDepth +
                   row % kDepth;
        store<EParts>(v < count ? _mm512_loadu_ps(values + v * pitch_ + row) : _mm512_setzero_ps(), to, kTile * pitch_);
      }
    }
    const TileShape shape;
    const int64_t along = pitch_ / kDepth * kTileHalves;
    const Operand left{values_.get(), kTile * pitch_, along, kTileHalves};
    const Operand right{rows_.get(), pitch_ * width_, along, kTileHalves};
    for (int64_t h = 0; h < width_; h += kPad) {
      for (int64_t v = 0; v < count; v += kPad) {
        whole_rows(count - v, out + v * width_ + h, width_, [&](float* to, int64_t pitch) {
          multiply<EParts, XParts>(at(left, v), at(right, h), pitch_ / kDepth, to, pitch, false);
        });
      }
    }
  }

 private:
  template <int Count>
  static void store(__m512 values, Half* to, int64_t part) {
    const Parts parts(values);
    for (int i = 0; i < Count; ++i) parts.store(i, to + i * part);
  }
  template <int Count>
  static void store_pairs(__m512 first, __m512 second, Half* to, int64_t part) {
    const Parts a(first);
    const Parts b(second);
    for (int i = 0; i < Count; ++i) a.store_pairs(i, b, to + i * part);
  }
  // From row or column `index` on.
  static Operand at(Operand operand, int64_t index) {
    operand.tiles += index / kEdge * operand.across;
    return operand;
  }

  // The weight as left operand of the logits, rows v, sum over H; and as right one of the hidden states' gradient,
  // columns h, sum over v.
  void cut_weight(const float* weight, int64_t count) {
    for (int64_t v = 0; v < padded(count); v += 2) {
      for (int64_t h = 0; h < width_; h += kEdge) {
        const auto part = [&](int64_t i) {
          return Parts(i < count ? load(weight + i * size_.width + h, size_.width - h) : _mm512_setzero_ps());
        };
        const Parts first = part(v);
        const Parts second = part(v + 1);
        Half* left = weight_left_.get() + (v / kEdge * (width_ / kDepth) + h / kDepth) * kTileHalves +
                     v % kEdge * kDepth + h % kDepth;
        Half* right =
            weight_right_.get() + (h / kEdge * (kTile / kDepth) + v / kDepth) * kTileHalves + v % kDepth / 2 * kDepth;
        for (int i = 0; i < XParts; ++i) {
          first.store(i, left + i * kTile * width_);
          second.store(i, left + i * kTile * width_ + kDepth);
          first.store_pairs(i, second, right + i * kTile * width_);
        }
      }
    }
  }

  // work(to, pitch) writes kPad rows of kPad columns; of the last ones no more than there are come to `out`.
  template <class Work>
  static void whole_rows(int64_t rows, float* out, int64_t pitch, const Work& work) {
    if (rows >= kPad) return work(out, pitch);
    alignas(64) float block[kPad * kPad];
    work(block, kPad);
    for (int64_t i = 0; i < rows; ++i) __builtin_memcpy(out + i * pitch, block + i * kPad, kPad * 4);
  }

  ChunkSize size_;
  int64_t pitch_;
  int64_t width_;
  Array<Half> hidden_;
  Array<Half> rows_;
  Array<Half> weight_left_;
  Array<Half> weight_right_;
  Array<Half> values_;
  Array<float> gradient_;
};

// Linux gives a process the tiles' registers on asking.
bool available() {
  static const bool granted = [] {
    constexpr int kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr int kTileData = 18;
    unsigned int a = 0;
    unsigned int b = 0;
    unsigned int c = 0;
    unsigned int d = 0;
    constexpr unsigned int kFeatures = 7;
    constexpr unsigned int kBf16AndTile = (1U << 22U) | (1U << 24U);
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) != 0 && (d & kBf16AndTile) == kBf16AndTile &&
           syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  }();
  return granted;
}

}  // namespace

std::unique_ptr<Products> amx_products(const ChunkSize& size) {
  if (!available()) return nullptr;
  if (size.narrow) return std::make_unique<AmxProducts<1, 2>>(size);
  return std::make_unique<AmxProducts<3, 3>>(size);
}

}  // namespace regather::kernels::cpu
