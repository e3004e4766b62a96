// The mechanisms that a failure can have (interfaces: names that reports, issues and expectations rely on).
#pragma once

#include <string_view>
#include <vector>

namespace regather {

// Sorted by name.
const std::vector<std::string_view>& known_mechanisms();

// Throws UsageError naming the known ones.
void check_mechanism(std::string_view name);

}  // namespace regather
