// SARIF 2.1.0: a rule a mechanism, a result a case that fails.
#pragma once

#include <string>

#include "reports/report.h"

namespace regather::reports {

// Red cases are errors, flaky ones warnings; what fails as it may is a note, suppressed where an expectation says so.
// baselineState follows the verdict, workItemUris are the issues' addresses.
std::string sarif(const Report& report);

}  // namespace regather::reports
