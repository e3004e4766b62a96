// What is the same for every case of a run: model, batches, optimizer.
#pragma once

#include <cstdint>
#include <memory>

#include "case/case.h"
#include "loss/batch.h"
#include "model/qwen2.h"
#include "shard/adamw.h"

namespace regather::train {

// Micro-batches, thus forwards and backwards, of one step.
inline int micro_batches_of(const Case& c) { return c.accumulate == Accumulate::one ? 1 : 2; }

struct Setting {
  // float32; every rank and the reference start from a copy. For frozen=quantised the base holds values that packing
  // keeps: the ranks pack it, the reference computes with the same values dense.
  std::shared_ptr<const model::CausalLM> initial;
  std::shared_ptr<const model::CausalLM> reference;  // the model that dpo and kto compare with (given.h)
  loss::BatchShape batch;
  shard::OptimizerOptions optimizer{.lr = 5e-3};
  uint64_t seed = 1;
  at::Device device = at::kCPU;  // of the ranks; the reference is computed on the CPU
};

}  // namespace regather::train
