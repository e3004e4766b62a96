#include "matrix/plan/plan.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <unordered_set>

#include "base/error.h"
#include "case/fixes.h"
#include "matrix/plan/cover.h"
#include "matrix/plan/filter.h"

namespace regather::matrix {
namespace {

// The sets of fixes that a mode stands for in a case.
std::vector<Fixes> fix_sets(const Case& c, FixMode mode) {
  const Fixes recommended = recommended_fixes(c);
  if (mode == FixMode::off) return {{}};
  if (mode == FixMode::on) return {recommended};
  std::vector<Fixes> sets;
  for (const std::string& left_out : recommended) {
    Fixes rest = recommended;
    std::erase(rest, left_out);
    sets.push_back(std::move(rest));
  }
  return sets;
}

// Collects legal cases in order, each once.
class Collector {
 public:
  void add(const Case& c) {
    if (!seen_.insert(id(c)).second) return;
    cases_.push_back(c);
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::unordered_set<std::string> seen_;
  std::vector<Case> cases_;
};

size_t product(const CaseSet& set) {
  size_t count = 1;
  for (const auto& [axis, values] : set.axes) {
    count *= values.size();
    if (count > kMostCases) break;
  }
  return count;
}

// The legal combinations of a set, without fixes; the last axis varies fastest.
void add_set(const CaseSet& set, size_t axis, Case c, Collector& collector) {
  if (axis < set.axes.size()) {
    for (const std::string& value : set.axes[axis].second) {
      set_axis(c, set.axes[axis].first, value);
      add_set(set, axis + 1, c, collector);
    }
    return;
  }
  std::vector<Fixes> chosen = set.fix;
  if (chosen.empty()) {
    for (const FixMode mode : set.fixes) {
      for (Fixes& fixes : fix_sets(c, mode)) chosen.push_back(std::move(fixes));
    }
  }
  for (Fixes& fixes : chosen) {
    c.fixes = std::move(fixes);
    if (!illegal(c)) collector.add(c);
  }
}

}  // namespace

Shard parse_shard(std::string_view text) {
  Shard shard;
  const char* end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, shard.index);
  if (index.ec == std::errc() && index.ptr != end && *index.ptr == '/') {
    const auto count = std::from_chars(index.ptr + 1, end, shard.count);
    if (count.ec == std::errc() && count.ptr == end && shard.index >= 1 && shard.index <= shard.count) return shard;
  }
  throw UsageError(fmt::format("--shard '{}': expected K/N with 1 <= K <= N, as in 2/4", text));
}

std::vector<Case> expand(const Definition& definition) {
  size_t bound = 0;
  for (const CaseSet& set : definition.sets) bound += product(set);
  if (bound > kMostCases) {
    throw UsageError(fmt::format("definition '{}': its sets multiply to {} cases or more: at most {}; split it",
                                 definition.name, bound, kMostCases));
  }
  Collector collector;
  for (const CaseSet& set : definition.sets) add_set(set, 0, {}, collector);
  return collector.take();
}

std::vector<Case> divide(const std::vector<Case>& cases, Shard shard) {
  std::vector<Case> part;
  for (size_t i = shard.index - 1; i < cases.size(); i += shard.count) part.push_back(cases[i]);
  return part;
}

Plan make_plan(const Selection& selection) {
  std::vector<Case> cases;
  if (!selection.ids.empty()) {
    Collector collector;
    for (const std::string& text : selection.ids) collector.add(parse_id(text));
    cases = collector.take();
  } else {
    Definition definition = load_definition(selection.definition);
    if (selection.fixes) {
      for (CaseSet& set : definition.sets) {
        set.fixes = *selection.fixes;
        set.fix.clear();
      }
    }
    const Filter filter = selection.filter.empty() ? [](const Case&) { return true; } : parse_filter(selection.filter);
    for (const Case& c : expand(definition)) {
      if (filter(c) && id(c).find(selection.text) != std::string::npos) cases.push_back(c);
    }
  }
  if (selection.cover > 0) cases = cover(cases, selection.cover);
  std::string ids;
  for (const Case& c : cases) ids += id(c) + "\n";
  return {.definition = selection.ids.empty() ? selection.definition : "cases",
          .fingerprint = stable_hash(ids),
          .selected = cases.size(),
          .cases = divide(cases, selection.shard)};
}

std::string stable_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return fmt::format("{:016x}", hash);
}

}  // namespace regather::matrix
