// The policy with its adapters off is the base model: what reference=shared compares with.
#pragma once

#include <vector>

#include "model/layers.h"

namespace regather::model {

class AdaptersOff {
 public:
  explicit AdaptersOff(const Module& root) {
    for (const auto& module : root.modules()) {
      auto* lora = dynamic_cast<LoraLinear*>(module.get());
      if (lora == nullptr || !lora->adapters_enabled) continue;
      lora->adapters_enabled = false;
      off_.push_back(lora);
    }
  }
  ~AdaptersOff() {
    for (LoraLinear* lora : off_) lora->adapters_enabled = true;
  }
  AdaptersOff(const AdaptersOff&) = delete;
  AdaptersOff& operator=(const AdaptersOff&) = delete;

 private:
  std::vector<LoraLinear*> off_;
};

}  // namespace regather::model
