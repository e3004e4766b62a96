#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include "autograd/checkpoint.h"
#include "autograd/generator.h"

namespace regather::autograd {
namespace {

thread_local int64_t calls_without_graph = 0;

struct ReentrantNode : torch::autograd::Node {
  ReentrantNode(Block run, const at::Tensor& input, at::Tensor state)
      : block(std::move(run)), saved_input(input, false), random_state(std::move(state)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor input = saved_input.unpack();
    at::Tensor leaf = input.detach();
    leaf.requires_grad_(input.requires_grad());
    at::Tensor output;
    {
      const ScopedRandomState restored(random_state);
      const at::AutoGradMode with_grad(true);
      output = block(leaf);
    }
    if (!output.requires_grad()) {
      throw CheckpointError("reentrant checkpoint: the recomputed output does not require grad; nothing to go back to");
    }
    torch::autograd::backward({output}, {gradients[0]});
    return {leaf.grad()};
  }

  void release_variables() override { saved_input.reset_data(); }
  std::string name() const override { return "RegatherReentrantCheckpoint"; }

  Block block;
  torch::autograd::SavedVariable saved_input;
  at::Tensor random_state;
};

}  // namespace

at::Tensor checkpoint_reentrant(const Block& block, const at::Tensor& input) {
  at::Tensor state = rank_generator().get_state();
  at::Tensor output;
  {
    const at::NoGradGuard no_grad;
    output = block(input).detach();
  }
  if (!at::GradMode::is_enabled()) return output;
  if (!input.requires_grad()) {
    ++calls_without_graph;
    return output;
  }
  const auto node = std::make_shared<ReentrantNode>(block, input, std::move(state));
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(output, node);
  return output;
}

int64_t reentrant_calls_without_graph() { return calls_without_graph; }

}  // namespace regather::autograd
