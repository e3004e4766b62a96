// CTRF, the Common Test Report Format: https://ctrf.io
#pragma once

#include <string>

#include "reports/report.h"

namespace regather::reports {

// Passed and failed as in the JUnit writer; what fails as it may is "other", with the outcome as its raw status.
std::string ctrf(const Report& report);

}  // namespace regather::reports
