// The interface that every sharding backend has: it wraps a model, runs its forward, backward and step.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "model/module.h"
#include "shard/policy.h"

namespace regather::shard {

using at::Tensor;

// AdamW. eps is larger than the usual 1e-8 on purpose: with a tiny eps the first update is lr * sign(gradient), which
// hides a scaled gradient and turns a rounding error at a near-zero entry into a full-size difference.
struct OptimizerOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-3;
  double weight_decay = 0.01;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Runs `body` inside the wrapper's forward: hooks and reducer armed. The body calls submodules of the model.
  virtual Tensor forward(const std::function<Tensor()>& body) = 0;

  // Backward from a scalar loss, with the backend's own prologue and epilogue.
  virtual void backward(const Tensor& loss) = 0;

  // One optimizer step; parameters are again as the next forward expects them.
  virtual void step() = 0;
  virtual void zero_gradients() = 0;

  // Runs `body` while `parameters` are whole on every rank (no-op where they always are).
  virtual Tensor gathered(const std::vector<Tensor>& parameters, const std::function<Tensor()>& body) = 0;

  // The whole gradient of a parameter after backward, on every rank (a collective); undefined when it has none.
  virtual Tensor full_gradient(const std::string& name) = 0;
  // The whole parameter, detached copy, on every rank (a collective).
  virtual Tensor full_parameter(const std::string& name) = 0;

  // Broken invariants after a step ("model.norm.weight is still gathered"), empty when all hold. No collectives.
  virtual std::vector<std::string> broken_invariants() = 0;

  // What the backend saw that explains a failure (a partitioned parameter read directly, a dense gradient arriving at an
  // empty parameter): mechanism id -> parameter or detail, in order of occurrence.
  const std::vector<std::pair<std::string, std::string>>& observations() const { return observations_; }

  // gathers, releases, peak_bytes...
  std::map<std::string, double> counters;

 protected:
  std::vector<std::pair<std::string, std::string>> observations_;
};

}  // namespace regather::shard
