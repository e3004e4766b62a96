// Whether a result is red by the default rules, verdicts, and the exit code of a command.
#pragma once

#include <string_view>

#include "case/result.h"

namespace regather::matrix {

// The exit codes of every command (interfaces.md).
enum class Exit { green = 0, red = 1, usage = 2, internal = 3, nothing = 4, incomplete = 5, interrupted = 130 };

// What a result means, beside an expectation and beside an earlier document.
enum class Verdict {
  expected,    // passes, as it should; or is unsupported
  xfail,       // fails as its expectation says, or as the default rules allow
  xpass,       // passes though its expectation says that it fails
  regression,  // fails where it should pass, or otherwise than it should
  changed,     // fails otherwise than before, or is no longer (or newly) supported
  fixed,       // passes and failed before
  flaky,       // attempts came out differently
  absent,      // stood in the earlier document and does not now, or has not run
  fresh,       // "new": did not stand in the earlier document
  unchanged    // as before; only where two documents are compared
};
const char* name(Verdict verdict);
Verdict parse_verdict(std::string_view text);  // throws UsageError

// Whether the case has every fix that is recommended for it.
bool fully_fixed(const Case& c);

// With its recommended fixes a case is red unless it passes; with fewer, only where even a known bug must not lead:
// hang, crash, out of memory, unchecked. Unsupported and notrun are never red.
bool red(const CaseResult& result);

}  // namespace regather::matrix
