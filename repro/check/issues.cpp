#include "repro/check/issues.h"

#include <algorithm>

namespace regather::check {

std::vector<const repro::Entry*> issues_of(const std::string& mechanism, const Case& c) {
  std::vector<const repro::Entry*> found;
  if (mechanism.empty()) return found;
  const std::vector<AxisValue> values = axis_values(c);
  for (const repro::Entry& entry : repro::known_entries()) {
    if (entry.mechanism != mechanism || entry.status == repro::Status::refuted) continue;
    const bool holds = std::ranges::all_of(entry.axes, [&](const auto& axis) {
      return std::ranges::any_of(values, [&](const AxisValue& v) {
        return v.axis == axis.first && std::ranges::find(axis.second, v.value) != axis.second.end();
      });
    });
    if (holds) found.push_back(&entry);
  }
  return found;
}

}  // namespace regather::check
