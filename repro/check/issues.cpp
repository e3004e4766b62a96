#include "repro/check/issues.h"

#include <algorithm>
#include <array>
#include <functional>

#include "repro/check/call_path.h"
#include "repro/register.h"

namespace regather::check {
namespace {

// Where a report was seen, which is not what makes it.
constexpr std::array kIncidental{"world", "accumulate", "persistence", "steps"};

bool axes_hold(const repro::Entry& entry, const std::vector<AxisValue>& values) {
  return std::ranges::all_of(entry.axes, [&](const auto& axis) {
    if (std::ranges::find(kIncidental, axis.first) != kIncidental.end()) return true;
    return std::ranges::any_of(values, [&](const AxisValue& v) {
      return v.axis == axis.first && std::ranges::find(axis.second, v.value) != axis.second.end();
    });
  });
}

// Of one package any range may hold; a package whose release is not known speaks against nothing.
bool releases_hold(const repro::Entry& entry, const std::map<std::string, std::string>& releases) {
  return std::ranges::all_of(releases, [&](const auto& release) {
    bool named = false;
    for (const repro::VersionClaim& claim : entry.versions) {
      if (claim.package != release.first) continue;
      named = true;
      const bool holds =
          release.first == "trl" ? overlap(claim.range, release.second) : claim.parsed.holds(release.second);
      if (holds) return true;
    }
    return !named;
  });
}

}  // namespace

std::vector<const repro::Entry*> issues_of(const std::string& mechanism, const Case& c,
                                           const std::map<std::string, std::string>& releases) {
  std::vector<const repro::Entry*> found;
  const std::vector<AxisValue> values = axis_values(c);
  for (const repro::Entry& entry : repro::known_entries()) {
    const bool known = entry.status == repro::Status::reproduced || entry.status == repro::Status::recognised;
    const bool same = !entry.mechanisms.empty() && entry.mechanisms.front() == mechanism && !entry.axes.empty();
    if (known && same && axes_hold(entry, values) && releases_hold(entry, releases)) found.push_back(&entry);
  }
  std::ranges::stable_sort(found, std::greater{}, [](const repro::Entry* entry) { return entry->axes.size(); });
  return found;
}

}  // namespace regather::check
