// What a loss is given beforehand, by models that take no part in the step: whole batches, and the reference's weights.
#pragma once

#include <memory>
#include <vector>

#include "case/case.h"
#include "loss/batch.h"
#include "train/setting.h"

namespace regather::train {

// The reference model of dpo and kto: `initial` with every parameter moved a little, from `seed`, so that a reference
// that is left out or mistaken for the policy shows. float32, every parameter requiring grad as loaded.
std::shared_ptr<const model::CausalLM> make_reference_model(const model::CausalLM& initial, uint64_t seed);

// The batches of every rank for micro-batch number `index` of the run. From the initial model in float64:
// - grpo's old log-probabilities are its own plus a shift by which, in turn, a token's ratio lies above the clip, below
//   it and inside; its reference log-probabilities are its own plus noise.
// - kto's mismatched completions are those of several drawn whose log-ratio against the reference is the lowest (even
//   numbers, where the clamp at zero is active) or the highest (odd ones).
std::vector<loss::Batch> given_batches(const Setting& setting, const Case& c, int index);

}  // namespace regather::train
