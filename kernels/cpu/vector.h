// Vectors of `Lanes` floats and what is done with them. Included by translation units that are each compiled for
// another processor: everything is in an unnamed namespace, so that none of it is taken for another's.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

#include "kernels/cpu/products.h"

namespace regather::kernels::cpu {
namespace {

template <int Lanes>
struct Vector {
  using Float __attribute__((vector_size(4 * Lanes), aligned(4), may_alias)) = float;
  using Bits __attribute__((vector_size(4 * Lanes), aligned(4), may_alias)) = uint32_t;

  static Float load(const float* at) { return *reinterpret_cast<const Float*>(at); }
  static void store(float* at, Float value) { *reinterpret_cast<Float*>(at) = value; }
  static Float all(float value) { return Float{} + value; }

  // Within 2 ulp from -87 to 88; 0 below, at most e^88 above.
  static Float exp(Float x) {
    const Float bounded = x > all(88) ? all(88) : x;
    // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
    constexpr float kRound = 12582912.0F;
    const Float rounded = bounded * 1.44269504F + kRound;
    const Float n = rounded - kRound;
    const Float r = (bounded - n * 0.693145752F) - n * 1.42860677e-6F;  // ln 2 in two parts
    Float p = all(1.0F / 5040);
    p = p * r + 1.0F / 720;
    p = p * r + 1.0F / 120;
    p = p * r + 1.0F / 24;
    p = p * r + 1.0F / 6;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    const Bits power = (__builtin_bit_cast(Bits, rounded) << 23) + (127U << 23U);
    const Float result = p * __builtin_bit_cast(Float, power);
    return x < all(-87) ? Float{} : result;
  }

  static void exponentials(float* values, int64_t count, int64_t pitch, const float* shift, float* sums) {
    for (int64_t v = 0; v < count; ++v) {
      float* row = values + v * pitch;
      for (int64_t i = 0; i < pitch; i += Lanes) {
        const Float e = exp(load(row + i) - load(shift + i));
        store(row + i, e);
        store(sums + i, load(sums + i) + e);
      }
    }
  }
};

// Aligned memory that starts at zero.
template <class T>
class Array {
 public:
  Array() = default;
  explicit Array(int64_t count) {
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    data_ = static_cast<T*>(std::aligned_alloc(64, bytes == 0 ? 64 : bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    clear(count);
  }
  ~Array() { std::free(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* get() const { return data_; }
  void clear(int64_t count) { __builtin_memset(static_cast<void*>(data_), 0, static_cast<size_t>(count) * sizeof(T)); }

 private:
  T* data_ = nullptr;
};

}  // namespace
}  // namespace regather::kernels::cpu
