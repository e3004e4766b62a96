// The mechanisms that a failure can have (interfaces: names that reports, issues and expectations rely on).
#pragma once

#include <string_view>
#include <vector>

namespace regather {

struct MechanismInfo {
  std::string_view name;
  std::string_view about;  // what happens, in one sentence without its full stop
};

// Sorted by name.
const std::vector<MechanismInfo>& known_mechanisms();

// Throws UsageError naming the known ones.
const MechanismInfo& find_mechanism(std::string_view name);

}  // namespace regather
