#include "shard/zero/partition.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "case/fault.h"
#include "shard/parameters.h"

namespace regather::shard {
namespace {

void erase_gathered(std::vector<ParamState*>& states) {
  std::erase_if(states, [](const ParamState* s) { return s->status != Status::not_available; });
}

void show_buffer(ParamState& state) {
  state.parameter.set_data(state.gather_buffer.narrow(0, 0, state.numel).view(state.shape));
}

}  // namespace

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
  erase_gathered(states);
  if (states.empty()) return;
  std::sort(states.begin(), states.end(), [](const ParamState* a, const ParamState* b) { return a->id < b->id; });
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> inputs;
  for (ParamState* state : states) {
    state->gather_buffer = at::empty({state->shard_numel * world_.size()}, state->shard.options());
    outputs.push_back(state->gather_buffer);
    inputs.push_back(state->shard);
  }
  const auto gather = std::make_shared<AllGather>();
  gather->works = all_gather(outputs, inputs);
  gather->states = states;
  for (ParamState* state : states) {
    state->gather = gather;
    state->status = Status::inflight;
    ++gathers;
    gathered_bytes += static_cast<int64_t>(state->gather_buffer.nbytes());
  }
  if (states.size() == 1) show_buffer(*states[0]);
  peak_gathered_bytes = std::max(peak_gathered_bytes, gathered_bytes);
}

void Partition::wait(const ParamState& state) {
  if (state.status != Status::inflight) return;
  const at::NoGradGuard no_grad;
  const std::shared_ptr<AllGather> gather = state.gather;
  for (const comm::Work& work : gather->works) work->wait();
  for (ParamState* each : gather->states) {
    show_buffer(*each);
    each->gather_buffer = at::Tensor();
    each->gather.reset();
    each->status = Status::available;
  }
}

void Partition::gather(std::vector<ParamState*> states) {
  erase_gathered(states);
  start_gather(states);
  for (const ParamState* state : states) wait(*state);
}

void Partition::release(ParamState& state) {
  REGATHER_CHECK(state.status != Status::inflight, "zero3", "cannot free '{}': its all-gather is still in flight",
                 state.name);
  if (state.status == Status::not_available) return;
  REGATHER_CHECK(state.active_modules.empty(), "zero3",
                 "cannot free '{}': {} running module(s) still use it; end the gather scope outside their forward",
                 state.name, state.active_modules.size());
  const at::NoGradGuard no_grad;
  gathered_bytes -= static_cast<int64_t>(state.parameter.storage().nbytes());
  state.parameter.set_data(at::empty({0}, state.shard.options()));
  state.status = Status::not_available;
  state.freed_in_recompute = false;
  ++releases;
}

std::vector<comm::Work> Partition::all_gather(const std::vector<at::Tensor>& outputs,
                                              const std::vector<at::Tensor>& inputs) {
  std::map<at::ScalarType, std::vector<size_t>> by_dtype;
  for (size_t i = 0; i < inputs.size(); ++i) by_dtype[inputs[i].scalar_type()].push_back(i);
  std::vector<comm::Work> works(inputs.size());
  for (const auto& [dtype, places] : by_dtype) {
    std::vector<at::Tensor> to;
    std::vector<at::Tensor> from;
    for (const size_t i : places) {
      to.push_back(outputs[i]);
      from.push_back(inputs[i]);
    }
    const comm::Work work = to.size() == 1 ? world_.all_gather(to[0], from[0]) : world_.all_gather(to, from);
    for (const size_t i : places) works[i] = work;
  }
  return works;
}

std::vector<std::pair<std::string, at::Tensor>> Partition::gather_copies(const std::vector<const ParamState*>& states,
                                                                         const std::vector<at::Tensor>& shards) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> wholes;
  wholes.reserve(shards.size());
  for (const at::Tensor& shard : shards) wholes.push_back(at::empty({shard.numel() * world_.size()}, shard.options()));
  for (const comm::Work& work : all_gather(wholes, shards)) work->wait();
  std::vector<std::pair<std::string, at::Tensor>> copies;
  for (size_t i = 0; i < states.size(); ++i) {
    copies.emplace_back(states[i]->name, wholes[i].narrow(0, 0, states[i]->numel).view(states[i]->shape));
  }
  return copies;
}

}  // namespace regather::shard
