#include "shard/zero/module_hooks.h"

#include <algorithm>

#include "autograd/boundary.h"

namespace regather::shard {

ModuleHooks::ModuleHooks(Coordinator& coordinator, Partition& partition, model::Module& root, OnPartitionedRead on_read)
    : coordinator_(coordinator), partition_(partition), on_read_(std::move(on_read)) {
  install(root, /*is_root=*/true);
  running_.push_back(states_.front().get());
}

ModuleHooks::~ModuleHooks() {
  for (const auto& state : states_) state->module->clear_hooks();
}

void ModuleHooks::install(model::Module& module, bool is_root) {
  states_.push_back(std::make_unique<ModuleState>());
  ModuleState* state = states_.back().get();
  state->id = static_cast<int>(states_.size()) - 1;
  state->module = &module;
  for (const auto& parameter : module.parameters(/*recurse=*/false)) {
    if (ParamState* own = partition_.find(parameter)) state->own.push_back(own);
  }
  if (is_root) {
    module.add_pre_forward([this, state](model::Module&, const at::Tensor& input) {
      reads_register_ = true;
      running_.assign(1, state);  // an aborted pass may have left modules behind
      coordinator_.reset_step();
      return input;
    });
  }
  module.set_read_hook([this](model::Module&, const at::Tensor& parameter) { read(parameter); });
  module.add_pre_forward([this, state](model::Module&, const at::Tensor& x) { return before_forward(*state, x); });
  module.add_post_forward([this, state](model::Module&, const at::Tensor& y) { return after_forward(*state, y); });
  if (is_root) {
    module.add_post_forward([this](model::Module&, const at::Tensor& y) {
      reads_register_ = false;
      return y;
    });
  }
  for (const auto& child : module.module_children()) install(*child, /*is_root=*/false);
}

at::Tensor ModuleHooks::before_forward(ModuleState& state, const at::Tensor& input) {
  running_.push_back(&state);
  coordinator_.fetch(state);
  state.gradients_remaining = 0;
  if (!input.defined() || !input.requires_grad()) return input;
  ++state.gradients_remaining;
  return autograd::boundary(input, [this, &state] {
    if (--state.gradients_remaining == 0) coordinator_.release(state, /*forward=*/false);
  });
}

at::Tensor ModuleHooks::after_forward(ModuleState& state, const at::Tensor& output) {
  if (running_.size() > 1) running_.pop_back();
  keep_returned_parameter(state, output);
  coordinator_.release(state, /*forward=*/true);
  if (!output.defined()) return output;
  ++state.pending_pre_backward;
  return autograd::boundary(output, [this, &state] {
    if (state.pending_pre_backward <= 0) return;
    coordinator_.fetch(state);
    --state.pending_pre_backward;
  });
}

void ModuleHooks::keep_returned_parameter(ModuleState& finished, const at::Tensor& output) {
  if (!output.defined()) return;
  ParamState* parameter = partition_.find(output);
  if (parameter == nullptr) return;
  const auto knows = [parameter](const ModuleState* module) {
    return std::find(module->external.begin(), module->external.end(), parameter) != module->external.end();
  };
  if (std::any_of(running_.begin(), running_.end(), knows)) return;
  parameter->is_external = true;
  register_external(*running_.back(), *parameter);
  std::erase(finished.external, parameter);  // the outer module covers it from now on
  partition_.gather({parameter});
}

void ModuleHooks::register_external(ModuleState& module, ParamState& parameter) {
  const auto known = [&](const std::vector<ParamState*>& list) {
    return std::find(list.begin(), list.end(), &parameter) != list.end();
  };
  if (!known(module.external) && !known(module.own)) module.external.push_back(&parameter);
}

void ModuleHooks::read(const at::Tensor& parameter) {
  ParamState* state = partition_.find(parameter);
  if (state == nullptr || state->status == Status::available) return;
  if (!reads_register_ || state->status == Status::inflight) {
    on_read_(*state, in_engine_forward_);
    return;
  }
  register_external(*running_.back(), *state);
  partition_.gather({state});
}

}  // namespace regather::shard
