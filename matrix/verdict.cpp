#include "matrix/verdict.h"

#include <algorithm>

#include "case/fixes.h"

namespace regather::matrix {

bool fully_fixed(const Case& c) { return std::ranges::includes(c.fixes, recommended_fixes(c)); }

bool red(const CaseResult& result) {
  switch (result.outcome) {
    case Outcome::pass:
    case Outcome::unsupported:
    case Outcome::notrun:
      return false;
    case Outcome::hang:
    case Outcome::crash:
    case Outcome::oom:
    case Outcome::unchecked:
      return true;
    case Outcome::wrong_gradient:
    case Outcome::nonfinite:
    case Outcome::error:
    case Outcome::invariant:
      break;
  }
  return fully_fixed(result.which);
}

}  // namespace regather::matrix
