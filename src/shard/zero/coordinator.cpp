#include "shard/zero/coordinator.h"

#include <algorithm>
#include <utility>

#include "autograd/checkpoint.h"
#include "base/error.h"

namespace regather::shard {
namespace {

// stage3_max_reuse_distance, upstream's default: a parameter that a later submodule within so many elements uses again
// is not released in between.
constexpr int64_t kMaxReuseDistance = 1'000'000'000;

}  // namespace

std::vector<ParamState*> ModuleState::parameters() const {
  std::vector<ParamState*> all = own;
  all.insert(all.end(), external.begin(), external.end());
  return all;
}

Coordinator::Coordinator(comm::World& world, Partition& partition, ReleasePolicy& policy,
                         OnRecomputeRelease on_recompute_release)
    : world_(world), partition_(partition), policy_(policy), on_recompute_release_(std::move(on_recompute_release)) {}

void Coordinator::reset_step() {
  for (const auto& state : partition_.states()) {
    if (state->status != Status::inflight) continue;
    partition_.wait(*state);
    if (state->active_modules.empty()) partition_.release(*state);
  }
  if (trace_ != Trace::complete) {
    uint64_t digest = 14695981039346656037ULL;  // FNV-1a over the modules' ids
    for (const ModuleState* module : order_) digest = (digest ^ static_cast<uint64_t>(module->id)) * 1099511628211ULL;
    const std::vector<int64_t> digests = world_.all_gather_int(static_cast<int64_t>(digest));
    REGATHER_CHECK(std::equal(digests.begin() + 1, digests.end(), digests.begin()), "zero3",
                   "the ranks ran different submodules or in another order; this rank ran {}", order_.size());
    trace_ = trace_ == Trace::record ? Trace::complete : Trace::record;
  }
  step_ = 0;
}

void Coordinator::follow_trace(const ModuleState& module) {
  if (trace_ != Trace::complete) return;
  if (step_ < order_.size() && order_[step_] == &module) return;
  trace_ = Trace::invalid;
  order_.clear();
}

void Coordinator::fetch(ModuleState& module) {
  follow_trace(module);
  if (trace_ == Trace::record) order_.push_back(&module);
  const std::vector<ParamState*> parameters = module.parameters();
  partition_.start_gather(parameters);
  for (ParamState* state : parameters) {
    state->active_modules.insert(module.id);
    partition_.wait(*state);
  }
  ++step_;
}

bool Coordinator::due_again(const ParamState& state) const {
  int64_t distance = 0;
  for (size_t i = step_; i < order_.size() && distance < kMaxReuseDistance; ++i) {
    for (const ParamState* used : order_[i]->parameters()) {
      if (used == &state) return true;
      distance += used->numel;
    }
  }
  return false;
}

void Coordinator::release(ModuleState& module, bool forward) {
  for (ParamState* state : module.parameters()) {
    state->active_modules.erase(module.id);
    if (state->is_external || !state->active_modules.empty()) continue;
    // Persistence counts only once the order is known, as upstream.
    if (trace_ == Trace::complete && (state->persist || due_again(*state))) continue;
    if (forward && policy_.keep_after_forward(state->parameter)) continue;
    if (forward && !state->parameter.requires_grad() && autograd::in_backward()) on_recompute_release_(*state);
    partition_.release(*state);
  }
}

void Coordinator::release_all() {
  for (const auto& state : partition_.states()) {
    partition_.wait(*state);
    state->active_modules.clear();
    partition_.release(*state);
  }
}

}  // namespace regather::shard
