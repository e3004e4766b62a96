#include "kernels/cpu/numbers.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace regather::kernels::cpu {
namespace {

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16U); }

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

// By way of floats whose exponents are 112 too small or too large.
float from_fp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16U;
  const uint32_t rest = static_cast<uint32_t>(bits & 0x7fffU) << 13U;
  if ((bits & 0x7c00U) == 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | rest);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112F));
}

uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16U) & 0x8000U);
  const float size = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00U);
  if (size >= 65520) return static_cast<uint16_t>(sign | 0x7c00U);
  // Below the smallest normal number the distance between numbers stays the same: adding rounds there.
  if (size < 0x1p-14F) return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(size + 0.5F) - 0x3f000000U));
  const uint32_t rest = std::bit_cast<uint32_t>(size * 0x1p-112F);
  return static_cast<uint16_t>(sign | ((rest + 0xfffU + ((rest >> 13U) & 1U)) >> 13U));
}

}  // namespace

void widen(const void* values, Dtype dtype, int64_t first, int64_t count, float* out) {
  if (count == 0) return;
  if (dtype == Dtype::fp32) {
    std::memcpy(out, static_cast<const float*>(values) + first, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* from = static_cast<const uint16_t*>(values) + first;
  if (dtype == Dtype::bf16) {
    for (int64_t i = 0; i < count; ++i) out[i] = from_bf16(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = from_fp16(from[i]);
  }
}

void narrow(const float* values, int64_t count, Dtype dtype, void* out, int64_t first) {
  if (count == 0) return;
  if (dtype == Dtype::fp32) {
    std::memcpy(static_cast<float*>(out) + first, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* to = static_cast<uint16_t*>(out) + first;
  if (dtype == Dtype::bf16) {
    for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(values[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = to_fp16(values[i]);
  }
}

void add_narrow(const float* values, int64_t count, Dtype dtype, void* out, int64_t first) {
  if (dtype == Dtype::fp32) {
    auto* to = static_cast<float*>(out) + first;
    for (int64_t i = 0; i < count; ++i) to[i] += values[i];
    return;
  }
  auto* to = static_cast<uint16_t*>(out) + first;
  if (dtype == Dtype::bf16) {
    for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(from_bf16(to[i]) + values[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = to_fp16(from_fp16(to[i]) + values[i]);
  }
}

}  // namespace regather::kernels::cpu
