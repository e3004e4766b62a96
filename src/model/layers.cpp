#include "model/layers.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>

namespace regather::model {

Linear::Linear(int64_t in, int64_t out, bool bias) {
  register_parameter("weight", at::zeros({out, in}));
  if (bias) register_parameter("bias", at::zeros({out}));
}

Linear::Linear(Tensor shared_weight, bool bias) {
  // Registration sets the flag, and a shared weight may be frozen by its owner.
  const bool trainable = shared_weight.requires_grad();
  const int64_t out = shared_weight.size(0);
  register_parameter("weight", std::move(shared_weight), trainable);
  if (bias) register_parameter("bias", at::zeros({out}));
}

Tensor Linear::forward(const Tensor& x) {
  const Tensor& w = weight();
  const Tensor b = bias();
  if (!quantisation_) return at::linear(x, w, b);
  const Tensor product = packed_linear(x, w, quantisation_);
  return b.defined() ? product + b : product;
}

void Linear::set_packed(PackedWeight weight) {
  set_own_parameter("weight", std::move(weight.packed));
  quantisation_ = std::move(weight.quantisation);
}

Embedding::Embedding(int64_t count, int64_t width, int64_t padding) : padding_(padding) {
  register_parameter("weight", at::zeros({count, width}));
}

Tensor Embedding::forward(const Tensor& ids) { return at::embedding(read(weight_handle()), ids, padding_); }

RmsNorm::RmsNorm(int64_t width, double eps) : eps_(eps) { register_parameter("weight", at::ones({width})); }

// One operation a line, in transformers' order: a checkpoint compares what autograd saves by position.
Tensor RmsNorm::forward(const Tensor& x) {
  const Tensor wide = x.to(at::promote_types(x.scalar_type(), at::kFloat));
  const Tensor variance = at::mean(at::pow(wide, 2), {-1}, /*keepdim=*/true);
  const Tensor normalised = wide * at::rsqrt(variance + eps_);
  const Tensor& weight = read(own_parameter("weight"));
  return weight * normalised.to(x.scalar_type());
}

}  // namespace regather::model
