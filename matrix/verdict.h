// Whether a result is red, and the exit code of a command.
#pragma once

#include "case/result.h"

namespace regather::matrix {

// The exit codes of every command (interfaces.md).
enum class Exit { green = 0, red = 1, usage = 2, internal = 3, nothing = 4, incomplete = 5, interrupted = 130 };

// Whether the case has every fix that is recommended for it.
bool fully_fixed(const Case& c);

// With its recommended fixes a case is red unless it passes; with fewer, only where even a known bug must not lead:
// hang, crash, out of memory, unchecked. Unsupported and notrun are never red.
bool red(const CaseResult& result);

}  // namespace regather::matrix
