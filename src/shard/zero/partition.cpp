#include "shard/zero/partition.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "case/fault.h"
#include "shard/parameters.h"

namespace regather::shard {

Partition::Partition(comm::World& world, const model::Module& root, int64_t persistence_threshold) : world_(world) {
  for (const auto& [name, parameter] : named_parameters_once(root)) {
    take(static_cast<int>(states_.size()), name, parameter, persistence_threshold);
  }
}

void Partition::take(int id, const std::string& name, const at::Tensor& parameter, int64_t persistence_threshold) {
  const at::NoGradGuard no_grad;
  auto state = std::make_unique<ParamState>();
  state->id = id;
  state->name = name;
  state->parameter = parameter;
  state->shape = parameter.sizes().vec();
  state->numel = parameter.numel();
  state->shard_numel = (state->numel + world_.size() - 1) / world_.size();
  state->persist = state->numel <= persistence_threshold;

  const at::Tensor flat = parameter.detach().reshape({-1});
  state->shard = at::zeros({state->shard_numel}, parameter.options().requires_grad(false));
  const int64_t shift = fault_is(Fault::shift_shard) && name.ends_with("q_proj.weight") ? 1 : 0;
  const int64_t start = state->shard_numel * world_.rank() + shift;
  const int64_t length = std::min(state->shard_numel, state->numel - start);
  if (length > 0) state->shard.narrow(0, 0, length).copy_(flat.narrow(0, start, length));

  if (parameter.requires_grad()) {
    state->master = state->shard.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    state->gradient = at::zeros_like(state->master);
  }
  state->status = Status::available;
  gathered_bytes += static_cast<int64_t>(parameter.nbytes());
  by_tensor_.emplace(parameter.unsafeGetTensorImpl(), state.get());
  release(*state);
  states_.push_back(std::move(state));
}

ParamState* Partition::find(const at::Tensor& parameter) const {
  const auto found = by_tensor_.find(parameter.unsafeGetTensorImpl());
  return found == by_tensor_.end() ? nullptr : found->second;
}

void Partition::start_gather(std::vector<ParamState*> states) {
  const at::NoGradGuard no_grad;
  std::erase_if(states, [](const ParamState* s) { return s->status != Status::not_available; });
  if (states.empty()) return;
  std::sort(states.begin(), states.end(), [](const ParamState* a, const ParamState* b) { return a->id < b->id; });
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> inputs;
  for (ParamState* state : states) {
    state->gather_buffer = at::empty({state->shard_numel * world_.size()}, state->shard.options());
    outputs.push_back(state->gather_buffer);
    inputs.push_back(state->shard);
  }
  const comm::Work work =
      states.size() == 1 ? world_.all_gather(outputs[0], inputs[0]) : world_.all_gather(outputs, inputs);
  for (ParamState* state : states) {
    state->gather_work = work;
    state->status = Status::inflight;
    ++gathers;
    gathered_bytes += static_cast<int64_t>(state->gather_buffer.nbytes());
  }
  peak_gathered_bytes = std::max(peak_gathered_bytes, gathered_bytes);
}

void Partition::wait(ParamState& state) {
  if (state.status != Status::inflight) return;
  const at::NoGradGuard no_grad;
  state.gather_work->wait();
  state.parameter.set_data(state.gather_buffer.narrow(0, 0, state.numel).view(state.shape));
  state.gather_buffer = at::Tensor();
  state.gather_work.reset();
  state.status = Status::available;
}

void Partition::gather(const std::vector<ParamState*>& states) {
  start_gather(states);
  for (ParamState* state : states) wait(*state);
}

void Partition::release(ParamState& state) {
  if (state.status != Status::available) return;
  REGATHER_CHECK(state.active_modules.empty(), "zero3",
                 "cannot free '{}': {} running module(s) still use it; end the gather scope outside their forward",
                 state.name, state.active_modules.size());
  const at::NoGradGuard no_grad;
  gathered_bytes -= static_cast<int64_t>(state.parameter.storage().nbytes());
  state.parameter.set_data(at::empty({0}, state.shard.options()));
  state.status = Status::not_available;
  ++releases;
}

std::vector<std::pair<std::string, at::Tensor>> Partition::gather_copies(const std::vector<const ParamState*>& states,
                                                                         std::vector<at::Tensor> shards) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> wholes;
  for (const at::Tensor& shard : shards) wholes.push_back(at::empty({shard.numel() * world_.size()}, shard.options()));
  if (!shards.empty()) world_.all_gather(wholes, shards)->wait();
  std::vector<std::pair<std::string, at::Tensor>> copies;
  for (size_t i = 0; i < states.size(); ++i) {
    copies.emplace_back(states[i]->name, wholes[i].narrow(0, 0, states[i]->numel).view(states[i]->shape));
  }
  return copies;
}

}  // namespace regather::shard
