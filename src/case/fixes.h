// The names of the fixes and the recommended set of a case. What a fix does is in src/fixes/, one file each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "case/case.h"

namespace regather {

struct FixInfo {
  std::string name;
  std::string repairs;              // one line: the bug in our words
  std::vector<Backend> backends{};  // those on which it acts; empty: all
  bool acts_on(Backend backend) const;
};
// Sorted by name.
const std::vector<FixInfo>& known_fixes();

// The set that `--fixes on` applies (interfaces.md): it depends on backend and loss alone.
Fixes recommended_fixes(Backend backend, Loss loss);
// The same for one case: less redirect where the call excludes it.
Fixes recommended_fixes(const Case& c);

// "a+b" or "none"; throws UsageError for a name that is not a fix. Sorted on return.
Fixes parse_fixes(std::string_view text);
std::string print_fixes(const Fixes& fixes);

}  // namespace regather
