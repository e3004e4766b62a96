// When FSDP2's units gather, free and reduce: hooks on their modules, on what these return and on what they take.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "model/module.h"
#include "shard/fsdp2/unit.h"

namespace regather::shard {

// A unit, in PyTorch's order:
// - pre-forward: gathers; marks its input, so that the backward's end shows when the input's gradient is there;
// - post-forward: frees, unless the unit says otherwise; marks its output;
// - pre-backward (the output's gradient comes): gathers, and fetches the unit that ran before it in forward;
// - post-backward (the input's gradient goes): takes the gradients, frees, starts the reduction;
// - the end of backward: post-backward for units whose input needs no gradient and for the root; all is settled.
// A forward inside a backward whose pre-backward ran is a recompute: it gathers if need be and changes nothing else.
class Schedule {
 public:
  Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // Hooks `unit` to `module`; both must outlive the graphs of their forwards. In the order in which the end of backward
  // is to visit them, which must be the same on every rank.
  void add(Unit& unit, model::Module& module);

  // False: backward leaves gradients unreduced at the whole parameters, and the next one adds to them.
  void set_requires_gradient_sync(bool reduces) { reduces_ = reduces; }
  // A backward is under way whose end has not come: after an error it never does.
  bool is_open() const { return end_queued_; }

 private:
  at::Tensor pre_forward(Unit& unit, const at::Tensor& input);
  at::Tensor post_forward(Unit& unit, const at::Tensor& output);
  void pre_backward(Unit& unit);
  void prefetch_before(Unit& unit);
  void post_backward(Unit& unit);
  void end_backward();
  void finish_reduction();

  std::vector<Unit*> units_;
  std::vector<Unit*> forward_order_;    // by post-forward, since the last backward
  std::optional<Reduction> reduction_;  // at most one is under way
  bool reduces_ = true;
  bool end_queued_ = false;
};

}  // namespace regather::shard
