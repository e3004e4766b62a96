// What a release of TRL does with a setting before it trains: refuses it, or changes it. Each rule was read in the
// releases that it names.
#pragma once

#include <optional>
#include <string>

#include "repro/check/setting.h"

namespace regather::check {

struct Refusal {
  std::string versions;  // the range of TRL's releases that refuse
  std::string type;
  std::string text;
  std::string source;
};

// `versions` is a call path's range; a rule counts where it holds for every release in it.
std::optional<Refusal> refusal(const Setting& setting, const std::string& versions);

// The setting's axes as that release changes them: adapters on ZeRO-3 get a reentrant checkpoint, where transformers
// still reads it from the place in which TRL puts it. Says so in `assumed`.
Case guarded(const Setting& setting, const std::string& versions, std::vector<Assumption>& assumed);

}  // namespace regather::check
