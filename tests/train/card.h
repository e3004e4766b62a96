// What every case of the card starts from.
#pragma once

#include <memory>

#include "train/given.h"
#include "train/setting.h"

namespace regather::train {

inline Setting card() {
  auto initial = std::make_shared<model::CausalLM>(model::Config{});
  model::initialise(*initial, 1);
  Setting setting;
  setting.initial = initial;
  setting.reference = make_reference_model(*initial, 1);
  return setting;
}

}  // namespace regather::train
