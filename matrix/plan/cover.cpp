#include "matrix/plan/cover.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "case/fixes.h"
#include "case/support.h"

namespace regather::matrix {
namespace {

constexpr size_t kMostCombinations = 20'000'000;  // of all cases together: 80 MB

using Values = std::vector<uint32_t>;  // of a case, a number an axis

// The values of each case on the axes that vary.
std::vector<Values> values_of(const std::vector<Case>& cases) {
  std::vector<Values> rows(cases.size());
  std::vector<std::unordered_map<std::string, uint32_t>> known;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<AxisValue> values = axis_values(cases[i]);
    values.push_back({"fix", print_fixes(cases[i].fixes)});
    known.resize(values.size());
    for (size_t axis = 0; axis < values.size(); ++axis) {
      const auto number = static_cast<uint32_t>(known[axis].size());
      rows[i].push_back(known[axis].emplace(std::move(values[axis].value), number).first->second);
    }
  }
  for (Values& row : rows) {
    Values varying;
    for (size_t axis = 0; axis < row.size(); ++axis) {
      if (known[axis].size() > 1) varying.push_back(row[axis]);
    }
    row = std::move(varying);
  }
  return rows;
}

// Every choice of `strength` out of `count` axes.
std::vector<std::vector<size_t>> choices(size_t count, size_t strength) {
  std::vector<std::vector<size_t>> all;
  std::vector<size_t> choice(strength);
  for (size_t i = 0; i < strength; ++i) choice[i] = i;
  for (;;) {
    all.push_back(choice);
    size_t at = strength;
    while (at > 0 && choice[at - 1] == count - strength + at - 1) --at;
    if (at == 0) return all;
    ++choice[at - 1];
    for (size_t i = at; i < strength; ++i) choice[i] = choice[i - 1] + 1;
  }
}

// A number for each combination that occurs, and those of each case.
class Combinations {
 public:
  Combinations(const std::vector<Values>& rows, size_t strength) : of_case_(rows.size()) {
    const std::vector<std::vector<size_t>> all = choices(rows.front().size(), strength);
    if (rows.size() > kMostCombinations / all.size()) {
      throw UsageError(
          fmt::format("--cover {}: {} cases with {} choices of axes each are too many to count: at most {} "
                      "in all; narrow the selection or choose a smaller number",
                      strength, rows.size(), all.size(), kMostCombinations));
    }
    for (const std::vector<size_t>& choice : all) {
      std::unordered_map<std::string, uint32_t> known;  // of this choice
      for (size_t i = 0; i < rows.size(); ++i) {
        std::string key;
        for (const size_t axis : choice) {
          key.append(reinterpret_cast<const char*>(&rows[i][axis]), sizeof(uint32_t));
        }
        of_case_[i].push_back(known.emplace(std::move(key), count_ + known.size()).first->second);
      }
      count_ += static_cast<uint32_t>(known.size());
    }
  }

  const std::vector<uint32_t>& of(size_t index) const { return of_case_[index]; }
  size_t count() const { return count_; }

 private:
  std::vector<std::vector<uint32_t>> of_case_;
  uint32_t count_ = 0;
};

std::vector<size_t> choose(const Combinations& all, size_t cases) {
  std::vector<bool> covered(all.count());
  const auto gain = [&](size_t index) {
    return static_cast<size_t>(std::ranges::count_if(all.of(index), [&](uint32_t c) { return !covered[c]; }));
  };
  // What a case brings only falls, so a stale number is too high at most.
  using Entry = std::pair<size_t, size_t>;  // gain, and how early the case stands
  std::priority_queue<Entry> queue;
  for (size_t i = 0; i < cases; ++i) queue.emplace(all.of(i).size(), cases - i);
  std::vector<size_t> chosen;
  for (size_t left = all.count(); left > 0;) {
    const size_t index = cases - queue.top().second;
    queue.pop();
    const size_t now = gain(index);
    if (now == 0) continue;
    if (!queue.empty() && Entry(now, cases - index) < queue.top()) {
      queue.emplace(now, cases - index);
      continue;
    }
    for (const uint32_t c : all.of(index)) covered[c] = true;
    chosen.push_back(index);
    left -= now;
  }
  return chosen;
}

// Without those whose every combination another chosen case has, the last chosen looked at first.
std::vector<size_t> thinned(const Combinations& all, std::vector<size_t> chosen) {
  std::vector<uint32_t> times(all.count());
  for (const size_t index : chosen) {
    for (const uint32_t c : all.of(index)) ++times[c];
  }
  for (size_t i = chosen.size(); i-- > 0;) {
    const auto& own = all.of(chosen[i]);
    if (!std::ranges::all_of(own, [&](uint32_t c) { return times[c] > 1; })) continue;
    for (const uint32_t c : own) --times[c];
    chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return chosen;
}

}  // namespace

std::vector<Case> cover(const std::vector<Case>& cases, size_t strength) {
  std::vector<Case> supported;
  std::ranges::copy_if(cases, std::back_inserter(supported), [](const Case& c) { return !unsupported(c); });
  if (supported.empty()) return {};
  const std::vector<Values> rows = values_of(supported);
  if (rows.front().size() <= strength) return supported;
  const Combinations all(rows, strength);
  std::vector<size_t> chosen = thinned(all, choose(all, supported.size()));
  std::ranges::sort(chosen);
  std::vector<Case> subset;
  for (const size_t index : chosen) subset.push_back(supported[index]);
  return subset;
}

}  // namespace regather::matrix
