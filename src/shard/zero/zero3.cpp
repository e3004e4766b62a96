#include "shard/zero/zero3.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/error.h"
#include "case/fault.h"

namespace regather::shard {

Zero3::Zero3(comm::World& world, model::Module& root, const BackendOptions& options)
    : root_(root),
      optimizer_(options.optimizer),
      accumulation_(options.accumulation),
      scale_(accumulation_.divisor()),
      policy_(options.release ? options.release : std::make_shared<ReleasePolicy>()),
      partition_(world, root, options.persistence_threshold),
      coordinator_(world, partition_, *policy_, options,
                   [this](const std::string& mechanism, const std::string& detail) { observe(mechanism, detail); }),
      hooks_(coordinator_, partition_, root,
             [this](const ParamState& state, bool in_engine_forward) {
               observe(state.status == Status::inflight ? "head_read_inflight"
                       : in_engine_forward              ? "head_double_touch"
                                                        : "head_read_partitioned",
                       state.name);
             }),
      gradients_(world, partition_, [this](const ParamState& state) {
        observe(state.freed_in_recompute ? "recompute_freed_trainable" : "head_grad_on_partitioned", state.name);
      }) {}

Zero3::~Zero3() = default;

Tensor Zero3::forward(const std::function<Tensor()>& body) {
  struct EngineForward {
    explicit EngineForward(ModuleHooks& of) : hooks(of) { hooks.begin_engine_forward(); }
    ~EngineForward() { hooks.end_engine_forward(); }
    ModuleHooks& hooks;
  } running(hooks_);
  gradients_.begin_forward();
  return scale_.hook(root_.call(Tensor(), [&](const Tensor&) { return body(); }));
}

void Zero3::backward(const Tensor& loss) {
  require_scalar_with_graph(loss);
  scale_.begin_backward();
  loss.backward();
  if (scale_.was_bypassed()) observe("accumulation_scaled", "the loss did not pass the engine's forward");
  gradients_.flush();
  if (gradients_.overwrote())
    observe("accumulation_overwritten", "no forward of the engine came between two backwards");
  gradients_.end_backward();
}

void Zero3::step() {
  // Modules whose input needs no gradient never got their post-backward: what they hold is released here.
  coordinator_.release_all();
  const at::NoGradGuard no_grad;
  bool skip = fault_is(Fault::lost_update);
  const bool stale = fault_is(Fault::stale_shard);
  for (const auto& state : partition_.states()) {
    if (!state->master.defined()) continue;
    if (std::exchange(skip, false)) continue;
    adamw(state->master, state->gradient, state->optimizer, optimizer_);
    if (stale && state->name.ends_with("q_proj.weight")) continue;
    state->shard.copy_(state->master);
  }
  std::vector<ParamState*> persistent;
  for (const auto& state : partition_.states()) {
    if (state->persist) persistent.push_back(state.get());
  }
  partition_.gather(persistent);
  if (fault_is(Fault::keep_gathered)) partition_.gather({partition_.states().back().get()});
  count();
}

void Zero3::zero_gradients() {
  gradients_.start_boundary();
  for (const auto& state : partition_.states()) state->parameter.mutable_grad() = Tensor();
}

bool Zero3::is_whole(const Tensor& parameter) {
  const ParamState* state = partition_.find(parameter);
  return state == nullptr || state->status == Status::available;
}

Tensor Zero3::gathered(const std::vector<Tensor>& parameters, const std::function<Tensor()>& body) {
  std::vector<ParamState*> states;
  for (const Tensor& parameter : parameters) {
    ParamState* state = partition_.find(parameter);
    if (state != nullptr && std::find(states.begin(), states.end(), state) == states.end()) states.push_back(state);
  }
  partition_.gather(states);
  const auto partition_again = [&] {
    for (ParamState* state : states) partition_.release(*state);
  };
  Tensor result;
  try {
    result = body();
  } catch (...) {
    partition_again();
    throw;
  }
  partition_again();
  return result;
}

Named Zero3::full_gradients() {
  std::vector<const ParamState*> states;
  std::vector<Tensor> shards;
  for (const auto& state : partition_.states()) {
    if (!state->gradient.defined()) continue;
    states.push_back(state.get());
    shards.push_back(state->gradient);
  }
  return partition_.gather_copies(states, shards);
}

Named Zero3::full_parameters() {
  std::vector<const ParamState*> states;
  std::vector<Tensor> shards;
  for (const auto& state : partition_.states()) {
    states.push_back(state.get());
    shards.push_back(state->shard);
  }
  return partition_.gather_copies(states, shards);
}

std::vector<std::string> Zero3::broken_invariants() {
  std::vector<std::string> broken;
  for (const auto& state : partition_.states()) {
    if (!state->active_modules.empty()) {
      broken.push_back(fmt::format("{} is still in use by {} module(s)", state->name, state->active_modules.size()));
    }
    if (state->status == Status::inflight) broken.push_back(fmt::format("{} is still in flight", state->name));
    if (state->status == Status::available && !state->persist) {
      broken.push_back(fmt::format("{} is still gathered", state->name));
    }
    if (state->parameter.grad().defined())
      broken.push_back(fmt::format("{} still has its whole gradient", state->name));
  }
  return broken;
}

void Zero3::count() {
  counters_["gathers"] = static_cast<double>(partition_.gathers);
  counters_["releases"] = static_cast<double>(partition_.releases);
  counters_["prefetches"] = static_cast<double>(coordinator_.prefetches);
  counters_["prefetches_unused"] = static_cast<double>(coordinator_.prefetches_unused);
  counters_["peak_gathered_bytes"] = static_cast<double>(partition_.peak_gathered_bytes);
}

}  // namespace regather::shard
