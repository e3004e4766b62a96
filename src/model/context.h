// What every decoder layer of one backbone call needs besides hidden states.
#pragma once

#include <memory>
#include <utility>

#include "model/module.h"

namespace regather::model {

// Built once a backbone call, in the dtype of the hidden states, and never changed after.
struct Context {
  Tensor cos;   // [1, T, head_dim]
  Tensor sin;   // [1, T, head_dim]
  Tensor mask;  // [1, 1, T, T], added to the attention scores: 0, or the dtype's lowest value above the diagonal
};
using ContextPtr = std::shared_ptr<const Context>;

// Rotary frequencies, float32 [head_dim / 2]: theta ^ (-2i / head_dim).
Tensor rotary_frequencies(int64_t head_dim, double theta);

// Angles, cosines and sines in float32 and then rounded to `options`' dtype, for positions 0 .. length - 1.
ContextPtr make_context(const Tensor& frequencies, int64_t length, const at::TensorOptions& options);

// A module whose forward needs the context. A block that is run again during backward has to see the context of its own
// forward, even if the model has run on another batch since: whoever builds such a block captures the pointer by value
// and enters through run() or within().
class ContextModule : public Module {
 public:
  // operator() with `context` in force.
  Tensor run(const Tensor& input, const ContextPtr& context) {
    return within(context, [&] { return (*this)(input); });
  }

  void map_other_inputs(const Body& map) override;

 protected:
  // Calls `function` with `context` in force, and puts back the one before, also when an exception passes (a recompute
  // that stops early is one).
  template <typename Function>
  Tensor within(ContextPtr context, Function&& function) {
    struct Restore {
      ContextPtr& current;
      ContextPtr before;
      ~Restore() { current = std::move(before); }
    } restore{context_, std::exchange(context_, std::move(context))};
    return function();
  }
  // Throws Error("model") outside run() and within().
  const ContextPtr& context() const;

 private:
  ContextPtr context_;
};

}  // namespace regather::model
