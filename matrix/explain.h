// `regather explain CASE`: why a case fails, and the smallest sets of fixes with which it passes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/result.h"

namespace regather::matrix {

// A fix of a set, and what happens without it.
struct Repair {
  std::string fix;
  CaseResult without;  // of the case with the set's other fixes
};

struct Explanation {
  CaseResult given;                       // of the case as it is given
  std::vector<std::vector<Repair>> sets;  // no fix of a set can be left out; smaller sets first
  std::vector<std::string> superfluous;   // of a case that passes: its fixes that no set of only such has
};

// The fixes that may matter to the case: those of its backend that the runtime has and that are legal in it.
Fixes candidates(const Case& c);

// Runs the case, and it with sets of fixes, by size; what holds a set that passes is left out. One worker. Throws
// UsageError where the case is unsupported; nothing when interrupted.
std::optional<Explanation> explain(const Case& c);

std::string print(const Explanation& explanation);
nlohmann::ordered_json to_json(const Explanation& explanation);

}  // namespace regather::matrix
