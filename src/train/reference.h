// What is right: one process, no sharding, no checkpoint, eager loss, float64 (interfaces.md).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/setting.h"

namespace regather::train {

struct MicroBatch {
  std::vector<loss::Batch> batches;  // by rank: what the ranks are given
  std::vector<double> losses;        // by rank
  double mean_log_ratio = 0;         // kto: before the clamp
};

struct ReferenceStep {
  std::vector<MicroBatch> micro_batches;  // as many as a step accumulates
  std::map<std::string, at::Tensor>
      gradients;  // trainable: mean over ranks and micro-batches of the gradient of each loss, float64
  std::map<std::string, at::Tensor> updates;  // every parameter: after the step minus before, float64
};

struct Reference {
  std::vector<ReferenceStep> steps;
};

// Uses only the case's loss, reference, frozen set, world, steps and number of micro-batches. The optimizer is
// torch::optim::AdamW, not ours.
std::shared_ptr<const Reference> compute_reference(const Setting& setting, const Case& c);

}  // namespace regather::train
