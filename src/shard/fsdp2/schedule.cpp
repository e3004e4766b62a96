#include "shard/fsdp2/schedule.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <utility>

#include "autograd/boundary.h"
#include "autograd/checkpoint.h"

namespace regather::shard {

void Schedule::add(Unit& unit, model::Module& module) {
  const Hooked hooked{&unit, &module};
  hooked_.push_back(hooked);
  module.add_pre_forward([this, hooked](model::Module&, const at::Tensor& x) { return pre_forward(hooked, x); });
  module.add_post_forward(
      [this, hooked](model::Module&, const at::Tensor& y) { return post_forward(*hooked.unit, y); });
}

at::Tensor Schedule::run(model::Module& module, const at::Tensor& input, const model::Module::Body& body) {
  const auto found = std::ranges::find(hooked_, &module, &Hooked::module);
  if (found == hooked_.end()) return body(input);
  const Hooked hooked = *found;
  return post_forward(*hooked.unit, body(pre_forward(hooked, input)));
}

// What PyTorch looks at when the first forward comes, since until then parameters may be exchanged.
void Schedule::check_once() {
  if (std::exchange(checked_, true)) return;
  for (const Hooked& hooked : hooked_) hooked.unit->check_dtypes();
}

at::Tensor Schedule::pre_forward(const Hooked& hooked, const at::Tensor& input) {
  Unit& unit = *hooked.unit;
  if (unit.in_backward) {
    if (recompute_->gathers()) {
      unit.start_unshard();
      unit.finish_unshard();
    }
    if (recompute_->casts()) return cast_inputs(*hooked.module, input);
    if (would_cast(*hooked.module, input)) on_uncast_(unit);
    return input;
  }
  check_once();
  unit.phase = Unit::Phase::forward;
  at::Tensor cast = cast_inputs(*hooked.module, input);
  unit.start_unshard();
  unit.finish_unshard();
  if (!cast.defined()) return cast;
  return autograd::boundary(cast, [this, &unit] { post_backward(unit); });
}

at::Tensor Schedule::cast_inputs(model::Module& module, const at::Tensor& input) const {
  if (!precision_.cast_forward_inputs || !precision_.param_dtype) return input;
  const auto cast = [dtype = *precision_.param_dtype](const at::Tensor& x) {
    return x.defined() && x.is_floating_point() ? x.to(dtype) : x;
  };
  module.map_other_inputs(cast);
  return cast(input);
}

bool Schedule::would_cast(model::Module& module, const at::Tensor& input) const {
  if (!precision_.cast_forward_inputs || !precision_.param_dtype) return false;
  bool found = false;
  const auto look = [&](const at::Tensor& x) {
    found |= x.defined() && x.is_floating_point() && x.scalar_type() != *precision_.param_dtype;
    return x;
  };
  module.map_other_inputs(look);
  look(input);
  return found;
}

at::Tensor Schedule::post_forward(Unit& unit, const at::Tensor& output) {
  if (unit.in_backward) return output;
  if (!autograd::in_backward()) {
    if (unit.reshard_after_forward()) unit.reshard();
    unit.forward_places.push_back(forward_order_.size());
    forward_order_.push_back(&unit);
  }
  unit.phase = Unit::Phase::idle;
  if (at::GradMode::is_enabled() && output.defined() && output.requires_grad()) {
    output.register_hook([this, &unit](const at::Tensor& gradient) {
      pre_backward(unit);
      return gradient;
    });
  }
  return output;
}

void Schedule::pre_backward(Unit& unit) {
  unit.in_backward = true;
  if (!end_queued_) {
    end_queued_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
  }
  if (unit.phase == Unit::Phase::pre_backward) return;
  unit.phase = Unit::Phase::pre_backward;
  unit.start_unshard();
  unit.finish_unshard();
  prefetch_before(unit);
}

// By forward order: wrong where backward goes another way, and then dropped at its end.
void Schedule::prefetch_before(Unit& unit) {
  if (unit.forward_places.empty()) return;
  const size_t place = unit.forward_places.back();
  unit.forward_places.pop_back();
  if (place > 0) forward_order_[place - 1]->start_unshard();
}

void Schedule::post_backward(Unit& unit) {
  unit.phase = Unit::Phase::post_backward;
  if (recompute_->ends_with_post_backward()) unit.in_backward = false;
  if (!reduces_) {
    unit.reshard();
    unit.keep_gradients();
    return;
  }
  std::optional<Reduction> next = unit.start_reduction();
  unit.reshard();
  if (!next) return;
  finish_reduction();
  reduction_ = std::move(next);
}

void Schedule::finish_reduction() {
  if (reduction_) reduction_->finish();
  reduction_.reset();
}

void Schedule::end_backward() {
  for (const auto& [unit, module] : hooked_) {
    if (unit->phase != Unit::Phase::post_backward) post_backward(*unit);
    unit->in_backward = false;
    unit->phase = Unit::Phase::idle;
    unit->drop_fetched();
    unit->forward_places.clear();
  }
  forward_order_.clear();
  finish_reduction();
  end_queued_ = false;
}

}  // namespace regather::shard
