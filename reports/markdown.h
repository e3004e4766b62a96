// The support table in Markdown: a row a backend and loss.
#pragma once

#include <string>

#include "reports/report.h"

namespace regather::reports {

// Outcomes and counts of the cases without fixes, with some and with the recommended ones, where there are such. No
// times: the table changes only when what works does.
std::string markdown(const Report& report);

}  // namespace regather::reports
