// JUnit XML: a suite a backend and loss, a test a case.
#pragma once

#include <string>

#include "reports/report.h"

namespace regather::reports {

// Red cases are failures (errors when the worker died: crash, hang, oom), those that fail as they may are skipped with
// the reason, as are unsupported ones and those that have not run. Times are in seconds.
std::string junit(const Report& report);

}  // namespace regather::reports
