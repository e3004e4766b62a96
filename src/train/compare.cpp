#include "train/compare.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace regather::train {

Difference compare(const at::Tensor& got, const at::Tensor& want) {
  const at::NoGradGuard no_grad;
  REGATHER_CHECK(got.sizes() == want.sizes(), "compare", "got a tensor of {} elements, expected {}", got.numel(),
                 want.numel());
  const at::Tensor mine = got.detach().cpu().to(at::kDouble).contiguous();
  const at::Tensor right = want.detach().to(at::kDouble).contiguous();
  const auto* a = mine.const_data_ptr<double>();
  const auto* b = right.const_data_ptr<double>();
  double square = 0, mine_square = 0, right_square = 0, dot = 0;
  int64_t worst = 0;
  Difference result;
  for (int64_t i = 0; i < mine.numel(); ++i) {
    if (!std::isfinite(a[i])) {
      ++result.nonfinite;
      continue;
    }
    const double difference = a[i] - b[i];
    square += difference * difference;
    mine_square += a[i] * a[i];
    right_square += b[i] * b[i];
    dot += a[i] * b[i];
    if (std::abs(difference) > result.max_abs) {
      result.max_abs = std::abs(difference);
      worst = i;
    }
  }
  result.relative_l2 = right_square > 0 ? std::sqrt(square / right_square) : std::sqrt(mine_square);
  const double norms = std::sqrt(mine_square * right_square);
  result.cosine = norms > 0 ? dot / norms : (mine_square == right_square ? 1.0 : 0.0);
  if (mine.numel() > 0) {
    result.got = a[worst];
    result.want = b[worst];
    int64_t rest = worst;
    result.at.assign(static_cast<size_t>(mine.dim()), 0);
    for (int64_t axis = mine.dim() - 1; axis >= 0; --axis) {
      result.at[static_cast<size_t>(axis)] = rest % mine.size(axis);
      rest /= mine.size(axis);
    }
  }
  return result;
}

double update_share(const at::Tensor& before, const at::Tensor& after, const at::Tensor& want, double tolerance,
                    double rounding) {
  const at::NoGradGuard no_grad;
  const at::Tensor start = before.detach().cpu().to(at::kDouble);
  const double error = (after.detach().cpu().to(at::kDouble) - start - want).norm().item<double>();
  // Three roundings: the decay, the step, and the reference's own start at step 1.
  const double roundings = 3 * rounding * start.norm().item<double>();
  const double allowed = tolerance * want.norm().item<double>() + roundings;
  return allowed > 0 ? error / allowed : (error > 0 ? INFINITY : 0.0);
}

uint64_t digest(const at::Tensor& tensor, uint64_t seed) {
  uint64_t hash = seed ^ 14695981039346656037ULL;
  if (!tensor.defined()) return hash * 1099511628211ULL;
  const at::Tensor whole = tensor.detach().cpu().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(whole.const_data_ptr());
  size_t left = whole.nbytes();
  for (; left >= 8; left -= 8, bytes += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    hash = (hash ^ word) * 1099511628211ULL;
    hash ^= hash >> 29;
  }
  for (; left > 0; --left, ++bytes) hash = (hash ^ *bytes) * 1099511628211ULL;
  return hash;
}

}  // namespace regather::train
