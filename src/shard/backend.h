// The interface that every sharding backend has: it wraps a model, runs its forward, backward and step.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "case/case.h"
#include "comm/world.h"
#include "model/module.h"
#include "shard/accumulation.h"
#include "shard/adamw.h"
#include "shard/fsdp2/precision.h"
#include "shard/policy.h"

namespace regather::shard {

using at::Tensor;
using Named = std::vector<std::pair<std::string, Tensor>>;

// Something that the backend saw and that explains a failure: a partitioned parameter read directly, a dense gradient
// arriving at an empty parameter, a backward that no reducer waits for.
struct Observation {
  std::string mechanism;  // a mechanism id of interfaces.md
  std::string detail;     // the parameter
};

struct BackendOptions {
  OptimizerOptions optimizer{};
  AccumulationOptions accumulation{};
  // ZeRO-3, in elements, by upstream's names and (persistence apart) with its defaults.
  int64_t persistence_threshold = 0;            // stage3_param_...: parameters of at most so many persist
  int64_t prefetch_bucket_size = 50'000'000;    // stage3_...: so many are gathered ahead at a time
  int64_t max_live_parameters = 1'000'000'000;  // stage3_...: nothing is gathered ahead beyond so many
  int64_t max_reuse_distance = 1'000'000'000;   // stage3_...: what is used again within so many is not released
  std::shared_ptr<ReleasePolicy> release{};     // null: upstream's
  // FSDP2.
  MixedPrecision precision{};
  bool head_unit = false;                        // the head is a unit of its own, as the decoder layers are
  std::shared_ptr<RecomputePolicy> recompute{};  // null: upstream's
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Runs `body` inside the wrapper's forward: hooks and reducer armed. The body calls the model's submodules.
  virtual Tensor forward(const std::function<Tensor()>& body) = 0;
  // Backward from a micro-batch's scalar loss, with the backend's own prologue and epilogue. Gradients add up until the
  // step; the mean over ranks is there after the step's last backward.
  virtual void backward(const Tensor& loss) = 0;
  // One optimizer step; afterwards parameters are as the next forward expects them.
  virtual void step() = 0;
  virtual void zero_gradients() = 0;

  // True when all of the parameter's elements are on this rank now.
  virtual bool is_whole(const Tensor& parameter) = 0;
  // Runs `body` while the parameters are whole on every rank, then partitions them again (also those that were whole
  // before). Duplicates count once. A collective; no-op where parameters are never partitioned.
  virtual Tensor gathered(const std::vector<Tensor>& parameters, const std::function<Tensor()>& body) = 0;

  // After backward: the whole gradient of every trainable parameter, float32, on every rank; undefined where there is
  // none. A collective.
  virtual Named full_gradients() = 0;
  // Every parameter whole, copies, on every rank. A collective.
  virtual Named full_parameters() = 0;

  // Invariants that are broken after a step ("model.norm.weight is still gathered"); empty when all hold.
  virtual std::vector<std::string> broken_invariants() = 0;

  const std::vector<Observation>& observations() const { return observations_; }
  const std::map<std::string, double>& counters() const { return counters_; }

 protected:
  void observe(const std::string& mechanism, const std::string& detail) {
    observations_.push_back({mechanism, detail});
  }

  std::vector<Observation> observations_;
  std::map<std::string, double> counters_;
};

// Wraps `root`, whose parameters must be alike on every rank. Throws Error for a backend that the runtime lacks: ask
// unsupported() first.
std::unique_ptr<Backend> make_backend(regather::Backend kind, comm::World& world, model::Module& root,
                                      const BackendOptions& options);

}  // namespace regather::shard
