#include "shard/fsdp2/schedule.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>

#include "autograd/boundary.h"
#include "autograd/checkpoint.h"

namespace regather::shard {

void Schedule::add(Unit& unit, model::Module& module) {
  units_.push_back(&unit);
  module.add_pre_forward([this, &unit](model::Module&, const at::Tensor& x) { return pre_forward(unit, x); });
  module.add_post_forward([this, &unit](model::Module&, const at::Tensor& y) { return post_forward(unit, y); });
}

at::Tensor Schedule::pre_forward(Unit& unit, const at::Tensor& input) {
  if (unit.in_backward) {
    unit.start_unshard();
    unit.finish_unshard();
    return input;
  }
  unit.phase = Unit::Phase::forward;
  unit.start_unshard();
  unit.finish_unshard();
  if (!input.defined()) return input;
  return autograd::boundary(input, [this, &unit] { post_backward(unit); });
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
  if (!reduces_) {
    unit.reshard();
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
  for (Unit* unit : units_) {
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
