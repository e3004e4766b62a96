#include "shard/zero/trace.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>

namespace regather::shard {
namespace {

constexpr int64_t kNever = INT64_MIN;

std::vector<ParamState*> by_id(const ModuleState& module) {
  std::vector<ParamState*> sorted = module.parameters();
  std::sort(sorted.begin(), sorted.end(), [](const ParamState* a, const ParamState* b) { return a->id < b->id; });
  return sorted;
}

std::set<std::string> names(const std::set<const ParamState*>& states) {
  std::set<std::string> result;
  for (const ParamState* state : states) result.insert(state->name);
  return result;
}

}  // namespace

Trace::Trace(size_t parameters, int64_t max_reuse_distance)
    : max_reuse_distance_(max_reuse_distance), fetched_for_(parameters, kNever) {}

int64_t Trace::digest() const {
  uint64_t digest = 14695981039346656037ULL;  // FNV-1a
  const auto add = [&digest](int id) { digest = (digest ^ static_cast<uint64_t>(id)) * 1099511628211ULL; };
  for (const ModuleState* module : order_) {
    add(module->id);
    for (const ParamState* state : by_id(*module)) add(state->id);
  }
  return static_cast<int64_t>(digest);
}

void Trace::start_pass() {
  if (mode_ == Mode::record) {
    for (size_t step = 0; step < order_.size(); ++step) {
      for (ParamState* state : by_id(*order_[step])) uses_.push_back({state, static_cast<int64_t>(step)});
    }
    mode_ = Mode::complete;
  } else if (mode_ == Mode::invalid) {
    mode_ = Mode::record;
  }
  next_use_ = 0;
  std::fill(fetched_for_.begin(), fetched_for_.end(), kNever);
  step_ = 0;
}

bool Trace::follow(ModuleState& module) {
  if (mode_ == Mode::record) order_.push_back(&module);
  if (mode_ != Mode::complete || (step_ < order_.size() && order_[step_] == &module)) return true;
  mode_ = Mode::invalid;
  order_.clear();
  uses_.clear();
  next_use_ = 0;
  std::fill(fetched_for_.begin(), fetched_for_.end(), kNever);
  return false;
}

std::optional<std::string> Trace::take_out(const std::vector<ParamState*>& fetched) {
  std::set<const ParamState*> due;
  for (const ParamState* state : fetched) {
    if (fetched_for_[static_cast<size_t>(state->id)] < static_cast<int64_t>(step_)) due.insert(state);
  }
  std::set<const ParamState*> taken;
  while (taken.size() < due.size()) {
    const ParamState* state = pop();
    if (state == nullptr) break;
    taken.insert(state);
  }
  if (taken == due) return std::nullopt;
  return fmt::format("submodule number {} of the pass needs {{{}}}, where {{{}}} was recorded", step_,
                     fmt::join(names(due), ", "), fmt::join(names(taken), ", "));
}

ParamState* Trace::pop() {
  if (next_use_ == uses_.size()) return nullptr;
  const Use& use = uses_[next_use_++];
  fetched_for_[static_cast<size_t>(use.state->id)] = use.step;
  return use.state;
}

bool Trace::used_soon(const ParamState& state) const {
  int64_t distance = 0;
  for (size_t i = step_; i < order_.size() && distance < max_reuse_distance_; ++i) {
    for (const ParamState* used : order_[i]->parameters()) {
      if (used == &state) return true;
      distance += used->numel;
    }
  }
  return false;
}

const std::vector<ParamState*>& Trace::releasable(const ModuleState& module) {
  const auto [found, is_new] = releasable_.try_emplace({module.id, step_});
  if (!is_new) return found->second;
  for (ParamState* state : module.parameters()) {
    const bool counted_on = fetched_for_[static_cast<size_t>(state->id)] > static_cast<int64_t>(step_);
    if (!state->persist && !counted_on && !used_soon(*state)) found->second.push_back(state);
  }
  return found->second;
}

}  // namespace regather::shard
