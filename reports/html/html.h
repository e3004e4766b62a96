// The page that people look at: one file, without network, whose script and style alone may run.
#pragma once

#include <optional>
#include <string>

#include "matrix/judge/compare.h"
#include "reports/report.h"

namespace regather::reports {

// What the page compares its document with.
struct Before {
  std::string file;
  matrix::Comparison comparison;
};

// Every text of the document is either escaped in markup or stands in a data block that the script reads as JSON and
// puts in as text; a Content-Security-Policy names the script and the style by their hashes.
std::string html(const Report& report, const std::optional<Before>& before = std::nullopt);

}  // namespace regather::reports
