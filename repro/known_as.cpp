#include "repro/known_as.h"

#include <algorithm>
#include <string>

#include "repro/register.h"

namespace regather::repro {
namespace {

bool within(const Entry& entry, const Case& c) {
  const auto values = axis_values(c);
  return std::ranges::all_of(entry.axes, [&](const auto& axis) {
    const auto at = std::ranges::find(values, axis.first, &AxisValue::axis);
    return at != values.end() && std::ranges::find(axis.second, at->value) != axis.second.end();
  });
}

bool matches(const Entry& entry, const CaseResult& result) {
  return entry.signatures.empty() ||
         std::ranges::any_of(entry.signatures, [&](const Pattern& p) { return p.matches(result); });
}

bool shown_by(const Entry& entry, const Case& c) { return std::ranges::find(entry.without, c) != entry.without.end(); }

}  // namespace

std::vector<const Entry*> known_as(const CaseResult& result, size_t most) {
  std::vector<const Entry*> known;
  if (result.outcome == Outcome::pass || !result.signature || result.signature->mechanism.empty()) return known;
  for (const Entry& entry : known_entries()) {
    if (entry.status != Status::reproduced && entry.status != Status::recognised) continue;
    const auto& mechanisms = entry.mechanisms;
    const auto mechanism = std::ranges::find(mechanisms, result.signature->mechanism);
    if (mechanism == mechanisms.end() || !matches(entry, result)) continue;
    const bool instance = mechanism == mechanisms.begin() && !entry.axes.empty() && within(entry, result.which);
    if (instance || shown_by(entry, result.which)) known.push_back(&entry);
  }
  std::ranges::stable_sort(known, [&](const Entry* a, const Entry* b) {
    const bool first = shown_by(*a, result.which);
    if (first != shown_by(*b, result.which)) return first;
    return a->axes.size() > b->axes.size();
  });
  if (known.size() > most) known.resize(most);
  return known;
}

}  // namespace regather::repro
