#include "shard/zero/engine.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "base/error.h"

namespace regather::shard {
namespace {

struct Accumulated : torch::autograd::PostAccumulateGradHook {
  explicit Accumulated(std::function<void()> run) : function(std::move(run)) {}
  void operator()(const at::Tensor&) override { function(); }
  std::function<void()> function;
};

}  // namespace

void require_scalar_with_graph(const at::Tensor& loss) {
  REGATHER_CHECK(loss.numel() == 1 && loss.grad_fn() != nullptr, "zero",
                 "backward needs a scalar loss that carries a graph; this one has {} element(s) and {}", loss.numel(),
                 loss.grad_fn() ? "a graph" : "no graph: no parameter that it was computed from requires grad");
}

at::Tensor OutputScale::hook(at::Tensor output) {
  if (divisor_ > 1 && output.defined() && output.requires_grad()) {
    output.register_hook([this](const at::Tensor& gradient) {
      divided_ = true;
      return gradient / divisor_;
    });
  }
  return output;
}

void on_gradient_accumulated(const at::Tensor& leaf, std::function<void()> function) {
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<Accumulated>(std::move(function)));
}

void remove_accumulated_hook(const at::Tensor& leaf) { torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr); }

}  // namespace regather::shard
