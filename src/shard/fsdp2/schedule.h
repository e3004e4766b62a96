// When FSDP2's units gather, free and reduce: hooks on their modules, on what these return and on what they take.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/module.h"
#include "shard/fsdp2/precision.h"
#include "shard/fsdp2/unit.h"
#include "shard/policy.h"

namespace regather::shard {

// A unit, in PyTorch's order:
// - pre-forward: casts its inputs; gathers; marks its input, so that the backward's end shows when the input's gradient
//   is there;
// - post-forward: frees, unless the unit says otherwise; marks its output;
// - pre-backward (the output's gradient comes): gathers, and fetches the unit that ran before it in forward;
// - post-backward (the input's gradient goes): takes the gradients, frees, starts the reduction;
// - the end of backward: post-backward for units whose input needs no gradient and for the root; all is settled.
// A forward inside a backward whose pre-backward ran is a recompute: it does what the policy says and changes nothing
// else.
class Schedule {
 public:
  // A recompute left a floating input of another dtype than the unit's as it was.
  using OnUncast = std::function<void(const Unit&)>;

  Schedule(const MixedPrecision& precision, std::shared_ptr<RecomputePolicy> recompute, OnUncast on_uncast)
      : precision_(precision), recompute_(std::move(recompute)), on_uncast_(std::move(on_uncast)) {}
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // Hooks `unit` to `module`; both must outlive the graphs of their forwards. In the order in which the end of backward
  // is to visit them, which must be the same on every rank.
  void add(Unit& unit, model::Module& module);
  // Runs `body` between the pre-forward and the post-forward of `module`'s unit, and no other hook of the module. A
  // module that is no unit has none of these.
  at::Tensor run(model::Module& module, const at::Tensor& input, const model::Module::Body& body);

  // False: backward leaves gradients unreduced, and the next one adds to them.
  void set_requires_gradient_sync(bool reduces) { reduces_ = reduces; }
  bool requires_gradient_sync() const { return reduces_; }
  // A backward is under way whose end has not come: after an error it never does.
  bool is_open() const { return end_queued_; }

 private:
  struct Hooked {
    Unit* unit;
    model::Module* module;
  };

  at::Tensor pre_forward(const Hooked& hooked, const at::Tensor& input);
  at::Tensor post_forward(Unit& unit, const at::Tensor& output);
  at::Tensor cast_inputs(model::Module& module, const at::Tensor& input) const;
  bool would_cast(model::Module& module, const at::Tensor& input) const;
  void check_once();
  void pre_backward(Unit& unit);
  void prefetch_before(Unit& unit);
  void post_backward(Unit& unit);
  void end_backward();
  void finish_reduction();

  MixedPrecision precision_;
  std::shared_ptr<RecomputePolicy> recompute_;
  OnUncast on_uncast_;
  std::vector<Hooked> hooked_;
  std::vector<Unit*> forward_order_;    // by post-forward, since the last backward
  std::optional<Reduction> reduction_;  // at most one is under way
  bool checked_ = false;
  bool reduces_ = true;
  bool end_queued_ = false;
};

}  // namespace regather::shard
