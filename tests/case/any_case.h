// Random legal cases for property tests.
#pragma once

#include "base/random.h"
#include "case/case.h"
#include "case/fixes.h"

namespace regather {

inline Case any_case(Random& random) {
  for (;;) {
    Case c;
    for (const Axis& axis : axes()) {
      set_axis(c, axis.name, axis.values[static_cast<size_t>(random.below(static_cast<int64_t>(axis.values.size())))]);
    }
    for (const FixInfo& fix : known_fixes()) {
      if (random.below(3) == 0) c.fixes.push_back(fix.name);
    }
    if (!illegal(c)) return c;
  }
}

}  // namespace regather
