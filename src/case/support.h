// What a backend can run, and why not. Asked before a case runs, never caught afterwards.
#pragma once

#include <optional>
#include <string>

#include "case/case.h"

namespace regather {

// The reason why the reference runtime does not run this case, or nullopt when it does.
std::optional<std::string> unsupported(const Case& c);

}  // namespace regather
