#include "matrix/results/verdict.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "case/fixes.h"

namespace regather::matrix {
namespace {

constexpr std::array kVerdicts{"expected", "xfail", "xpass",  "regression", "changed",
                               "fixed",    "flaky", "absent", "new",        "unchanged"};

}  // namespace

const char* name(Verdict verdict) { return kVerdicts.at(static_cast<size_t>(verdict)); }

Verdict parse_verdict(std::string_view text) {
  const auto at = std::ranges::find(kVerdicts, text);
  if (at == kVerdicts.end()) {
    throw UsageError(fmt::format("'{}' is not a verdict: expected one of {}", text, fmt::join(kVerdicts, ", ")));
  }
  return static_cast<Verdict>(at - kVerdicts.begin());
}

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
