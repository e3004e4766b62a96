// What GitHub shows of a workflow run: a step summary and annotations.
#pragma once

#include <cstddef>
#include <string>

#include "reports/report.h"

namespace regather::reports {

// GitHub drops a step's summary above 1,024 kB, and shows at most 10 annotations of a kind a step.
inline constexpr size_t kLongestSummary = 1'000'000;
inline constexpr size_t kMostAnnotations = 10;

// Markdown: the verdict, the table, the red cases with what repairs them; fewer where not all fit.
std::string step_summary(const Report& report);

// Workflow commands, one a line: `::error title=ID::...` for red cases, the last one telling how many more there are.
std::string annotations(const Report& report);

}  // namespace regather::reports
