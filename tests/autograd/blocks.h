// Small blocks to checkpoint, with parameters of their own.
#pragma once

#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>

#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/generator.h"
#include "autograd/saved_hooks.h"

namespace regather::autograd {

struct Layer {
  at::Tensor weight = at::randn({8, 8}).requires_grad_(true);
  at::Tensor scale = at::randn({8}).requires_grad_(true);

  at::Tensor operator()(const at::Tensor& x) const { return (scale * at::linear(x, weight)).tanh(); }
};

// Zeroes entries by this rank's generator.
inline at::Tensor dropout(const at::Tensor& x) { return x * at::empty_like(x).bernoulli_(0.5, rank_generator()) * 2.0; }

// The gradients of `leaves` from `run`, which returns what to differentiate.
template <typename Run>
std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& leaves, Run&& run) {
  install_engine();
  for (const at::Tensor& leaf : leaves) leaf.mutable_grad() = at::Tensor();
  run().sum().backward();
  std::vector<at::Tensor> result;
  for (const at::Tensor& leaf : leaves) result.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
  return result;
}

inline bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !a[i].equal(b[i]))) return false;
  }
  return true;
}

}  // namespace regather::autograd
