#include "model/packed_weight.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace regather::model {
namespace {

using at::Tensor;

constexpr int64_t kBlock = 64;

// NormalFloat4: 16 quantiles of the normal distribution over [-1, 1], zero among them (appendix E of the paper).
constexpr std::array<float, 16> kCodes{
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

Tensor codes() { return at::tensor(at::ArrayRef<float>(kCodes)); }

Tensor midpoints() {
  const Tensor all = codes();
  return (all.narrow(0, 0, 15) + all.narrow(0, 1, 15)) / 2;
}

int64_t count(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

struct PackedLinearNode : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::NoGradGuard no_grad;
    const Tensor& gradient = gradients[0];
    if (!gradient.defined()) return {Tensor()};
    return {at::matmul(gradient, dequantise(packed, *quantisation, gradient.scalar_type()))};
  }
  std::string name() const override { return "RegatherPackedLinear"; }

  Tensor packed;
  std::shared_ptr<const Quantisation> quantisation;
};

}  // namespace

PackedWeight pack(const Tensor& weight, at::ScalarType storage) {
  const at::NoGradGuard no_grad;
  auto quantisation = std::make_shared<Quantisation>();
  quantisation->sizes = weight.sizes().vec();
  const int64_t numel = weight.numel();
  const Tensor flat = weight.detach().to(at::kFloat).reshape({-1});
  const Tensor blocks = at::constant_pad_nd(flat, {0, rounded_up(numel, kBlock) - numel}).view({-1, kBlock});
  quantisation->scales = at::amax(blocks.abs(), 1);
  const Tensor divisors = quantisation->scales.clamp_min(std::numeric_limits<float>::min()).unsqueeze(1);
  const Tensor nibbles = at::bucketize(blocks / divisors, midpoints()).view({-1}).narrow(0, 0, rounded_up(numel, 2));
  const Tensor bytes = (nibbles.slice(0, 0, {}, 2) * 16 + nibbles.slice(0, 1, {}, 2)).to(at::kByte);
  const int64_t unit = static_cast<int64_t>(c10::elementSize(storage));
  const Tensor padded = at::constant_pad_nd(bytes, {0, rounded_up(bytes.numel(), unit) - bytes.numel()});
  // A copy, since a parameter is no view of something else.
  return {padded.view(storage).unsqueeze(1).clone(), std::move(quantisation)};
}

Tensor dequantise(const Tensor& packed, const Quantisation& quantisation, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const int64_t numel = count(quantisation.sizes);
  const Tensor all = packed.view(at::kByte).reshape({-1});
  REGATHER_CHECK(all.numel() >= rounded_up(numel, 2) / 2, "model", "{} bytes of a packed weight of {} values",
                 all.numel(), numel);
  const Tensor bytes = all.narrow(0, 0, rounded_up(numel, 2) / 2);
  const Tensor nibbles = at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, 1).view({-1});
  const Tensor values = codes().to(packed.device()).index_select(0, nibbles.narrow(0, 0, numel).to(at::kInt));
  const Tensor scales =
      quantisation.scales.to(packed.device()).unsqueeze(1).expand({-1, kBlock}).reshape({-1}).narrow(0, 0, numel);
  return (values * scales).view(quantisation.sizes).to(dtype);
}

Tensor packed_linear(const Tensor& x, const Tensor& packed, std::shared_ptr<const Quantisation> how) {
  Tensor result;
  {
    const at::NoGradGuard no_grad;
    result = at::linear(x, dequantise(packed, *how, x.scalar_type()));
  }
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return result;
  const auto node = std::make_shared<PackedLinearNode>();
  node->packed = packed.view({-1, 1});
  node->quantisation = std::move(how);
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  torch::autograd::set_history(result, node);
  return result;
}

}  // namespace regather::model
