#include "comm/reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/error.h"

namespace regather::comm {
namespace {

using Op = c10d::ReduceOp::RedOpType;

template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>, float, T>;

template <typename A>
bool is_nan([[maybe_unused]] A value) {
  if constexpr (std::is_floating_point_v<A>) {
    return std::isnan(value);
  } else {
    return false;
  }
}

template <typename A>
A combine(Op op, A left, A right) {
  // A NaN on the left stays, since no comparison with it holds; one on the right must be asked for.
  switch (op) {
    case Op::PRODUCT:
      return static_cast<A>(left * right);
    case Op::MIN:
      return right < left || is_nan(right) ? right : left;
    case Op::MAX:
      return right > left || is_nan(right) ? right : left;
    default:
      return static_cast<A>(left + right);
  }
}

// A block of accumulators stays in the first cache while every rank is added to it, and the inner loop vectorises.
template <typename T, Op op>
void reduce_as(const std::vector<const std::byte*>& inputs, std::byte* out, int64_t numel) {
  using A = Accumulator<T>;
  constexpr int64_t kBlock = 1024;
  std::array<A, kBlock> sums;
  for (int64_t start = 0; start < numel; start += kBlock) {
    const int64_t count = std::min(kBlock, numel - start);
    const T* first = reinterpret_cast<const T*>(inputs[0]) + start;
    for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] = static_cast<A>(first[i]);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const T* next = reinterpret_cast<const T*>(inputs[rank]) + start;
      for (int64_t i = 0; i < count; ++i) {
        A& sum = sums[static_cast<size_t>(i)];
        sum = combine<A>(op, sum, static_cast<A>(next[i]));
      }
    }
    T* to = reinterpret_cast<T*>(out) + start;
    const A ranks = static_cast<A>(inputs.size());
    for (int64_t i = 0; i < count; ++i) {
      const A sum = sums[static_cast<size_t>(i)];
      to[i] = static_cast<T>(op == Op::AVG ? static_cast<A>(sum / ranks) : sum);
    }
  }
}

template <typename T>
void reduce_typed(Op op, const std::vector<const std::byte*>& inputs, std::byte* out, int64_t numel) {
  switch (op) {
    case Op::SUM:
      return reduce_as<T, Op::SUM>(inputs, out, numel);
    case Op::AVG:
      return reduce_as<T, Op::AVG>(inputs, out, numel);
    case Op::PRODUCT:
      return reduce_as<T, Op::PRODUCT>(inputs, out, numel);
    case Op::MIN:
      return reduce_as<T, Op::MIN>(inputs, out, numel);
    case Op::MAX:
      return reduce_as<T, Op::MAX>(inputs, out, numel);
    default:
      break;
  }
}

}  // namespace

void check_reduction(c10::ScalarType dtype, Op op, const char* name) {
  const bool operation = op == Op::SUM || op == Op::AVG || op == Op::PRODUCT || op == Op::MIN || op == Op::MAX;
  REGATHER_CHECK(operation, "comm", "{}: reduction {} is not one of sum, avg, product, min, max", name,
                 static_cast<int>(op));
  switch (dtype) {
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Char:
    case c10::ScalarType::Short:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
      return;
    default:
      throw Error("comm",
                  fmt::format("{} of {}: expected a real floating or integer dtype", name, c10::toString(dtype)));
  }
}

void reduce(c10::ScalarType dtype, Op op, const std::vector<const std::byte*>& inputs, std::byte* out, int64_t numel) {
  check_reduction(dtype, op, "reduction");
  switch (dtype) {
    case c10::ScalarType::Float:
      return reduce_typed<float>(op, inputs, out, numel);
    case c10::ScalarType::Double:
      return reduce_typed<double>(op, inputs, out, numel);
    case c10::ScalarType::Half:
      return reduce_typed<c10::Half>(op, inputs, out, numel);
    case c10::ScalarType::BFloat16:
      return reduce_typed<c10::BFloat16>(op, inputs, out, numel);
    case c10::ScalarType::Byte:
      return reduce_typed<uint8_t>(op, inputs, out, numel);
    case c10::ScalarType::Char:
      return reduce_typed<int8_t>(op, inputs, out, numel);
    case c10::ScalarType::Short:
      return reduce_typed<int16_t>(op, inputs, out, numel);
    case c10::ScalarType::Int:
      return reduce_typed<int32_t>(op, inputs, out, numel);
    default:
      return reduce_typed<int64_t>(op, inputs, out, numel);
  }
}

}  // namespace regather::comm
