// The data block of the page: what its script shows, as compact JSON.
#pragma once

#include <optional>
#include <string>

#include "reports/html/html.h"

namespace regather::reports {

// An object: `strings`, every text once; `cases`, a list a case, in which texts are indices into it (-1: none). The
// script names the positions. About 300 bytes a failing case.
std::string page_data(const Report& report, const std::optional<Before>& before);

}  // namespace regather::reports
