// The cases of a run: a definition expanded, filtered and divided.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "case/case.h"
#include "matrix/plan/definition.h"

namespace regather::matrix {

// The most that a plan may hold.
constexpr size_t kMostCases = 200'000;

// One of `count` parts, counted from 1.
struct Shard {
  size_t index = 1;
  size_t count = 1;
  bool operator==(const Shard&) const = default;
};
Shard parse_shard(std::string_view text);  // "2/4"; throws UsageError

// What the user chose.
struct Selection {
  std::string definition = "card";
  std::optional<std::vector<FixMode>> fixes;  // instead of the definition's
  std::string filter;
  std::string text;              // a part of the id
  std::vector<std::string> ids;  // exactly these, whatever the rest
  size_t cover = 0;              // cover() by so many axes; 0: all
  Shard shard;
};

struct Plan {
  std::string definition;   // its name; "cases" for a list of ids
  std::string fingerprint;  // of all selected ids, before the division: equal for every shard of a selection
  size_t selected = 0;      // how many cases there are of it
  std::vector<Case> cases;  // of this shard
};

// The legal cases of a definition in a stable order, each once.
std::vector<Case> expand(const Definition& definition);

// Every count-th case from index on: parts of equal size, disjoint, together everything.
std::vector<Case> divide(const std::vector<Case>& cases, Shard shard);

// Throws UsageError. A selection that holds nothing gives an empty plan.
Plan make_plan(const Selection& selection);

// 16 hexadecimal digits of 64-bit FNV-1a: the same on every machine and in every version.
std::string stable_hash(std::string_view text);

}  // namespace regather::matrix
