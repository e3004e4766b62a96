#include "shard/zero/coordinator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "autograd/checkpoint.h"
#include "base/error.h"

namespace regather::shard {

Coordinator::Coordinator(comm::World& world, Partition& partition, ReleasePolicy& policy, const BackendOptions& options,
                         Observe observe)
    : world_(world),
      partition_(partition),
      policy_(policy),
      observe_(std::move(observe)),
      prefetch_bucket_size_(options.prefetch_bucket_size),
      max_live_parameters_(options.max_live_parameters),
      trace_(partition.states().size(), options.max_reuse_distance) {}

void Coordinator::compare_with_other_ranks() {
  const std::vector<int64_t> digests = world_.all_gather_int(trace_.digest());
  if (std::equal(digests.begin() + 1, digests.end(), digests.begin())) return;
  observe_("ranks_diverged", fmt::format("{} submodules", trace_.step()));
  throw Error("zero3",
              fmt::format("the ranks ran different submodules or in another order; this rank ran {}", trace_.step()));
}

void Coordinator::reset_step() {
  settle();
  if (!trace_.is_complete()) compare_with_other_ranks();
  trace_.start_pass();
  live_ = 0;
}

void Coordinator::fetch(ModuleState& module) {
  if (!trace_.follow(module)) {
    observe_("trace_stale", fmt::format("submodule {}, number {} of its pass", module.id, trace_.step()));
    settle();
  }
  const std::vector<ParamState*> parameters = module.parameters();
  start(parameters);
  for (ParamState* state : parameters) {
    state->active_modules.insert(module.id);
    take(*state);
  }
  if (trace_.is_complete()) {
    if (const std::optional<std::string> wrong = trace_.take_out(parameters)) {
      observe_("trace_stale", *wrong);
      throw Error("zero3", *wrong);
    }
    prefetch();
  }
  trace_.next_step();
}

void Coordinator::start(const std::vector<ParamState*>& states) {
  std::vector<ParamState*> partitioned = states;
  std::erase_if(partitioned, [](const ParamState* s) { return s->status != Status::not_available; });
  partition_.start_gather(partitioned);
  for (ParamState* state : partitioned) {
    live_ += state->numel;
    // As upstream: a scope that partitions what was gathered ahead leaves it awaited.
    REGATHER_CHECK(awaited_.insert(state).second, "zero3", "'{}' was gathered ahead and freed before a module took it",
                   state->name);
  }
}

void Coordinator::take(ParamState& state) {
  if (awaited_.erase(&state) > 0) partition_.wait(state);
}

void Coordinator::prefetch() {
  const int64_t room = std::min(max_live_parameters_ - live_, prefetch_bucket_size_);
  std::set<ParamState*> ahead;
  for (int64_t numel = 0; numel < room;) {
    ParamState* state = trace_.pop();
    if (state == nullptr) break;
    // One that is whole, or on its way, counts as fetched for this use too: its release waits for it.
    if (state->status == Status::not_available && ahead.insert(state).second) numel += state->numel;
  }
  prefetches += static_cast<int64_t>(ahead.size());
  start({ahead.begin(), ahead.end()});
}

void Coordinator::settle() {
  prefetches_unused += static_cast<int64_t>(awaited_.size());
  for (ParamState* state : awaited_) {
    partition_.wait(*state);
    drop(*state);
  }
  awaited_.clear();
}

void Coordinator::drop(ParamState& state) {
  if (state.status != Status::available || !state.active_modules.empty()) return;
  partition_.release(state);
  live_ -= state.numel;
}

void Coordinator::release(ModuleState& module, bool forward) {
  // Persistence counts only once the order is complete, as upstream.
  std::vector<ParamState*> may_go = trace_.is_complete() ? trace_.releasable(module) : module.parameters();
  for (ParamState* state : module.parameters()) state->active_modules.erase(module.id);
  for (ParamState* state : may_go) {
    if (state->is_external || state->status != Status::available || !state->active_modules.empty()) continue;
    if (forward && policy_.keep_after_forward(state->parameter)) continue;
    drop(*state);
    state->freed_in_recompute = forward && autograd::in_backward();
    if (state->freed_in_recompute && !state->parameter.requires_grad()) {
      observe_("recompute_freed_frozen", state->name);
    }
  }
}

void Coordinator::release_all() {
  prefetches_unused += static_cast<int64_t>(awaited_.size());
  awaited_.clear();
  for (const auto& state : partition_.states()) {
    partition_.wait(*state);
    state->active_modules.clear();
    drop(*state);
  }
}

}  // namespace regather::shard
