#include "autograd/boundary.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace regather::autograd {
namespace {

struct BoundaryNode : torch::autograd::Node {
  explicit BoundaryNode(std::function<void()> run) : function(std::move(run)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::NoGradGuard no_grad;
    function();
    return std::move(gradients);
  }
  std::string name() const override { return "RegatherBoundary"; }

  std::function<void()> function;
};

}  // namespace

at::Tensor boundary(const at::Tensor& x, std::function<void()> function) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return x;
  const auto node = std::make_shared<BoundaryNode>(std::move(function));
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  at::Tensor result = x.detach();
  torch::autograd::set_history(result, node);
  return result;
}

}  // namespace regather::autograd
