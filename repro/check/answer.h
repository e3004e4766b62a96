// One release's answer from one set of measured cells.
#pragma once

#include <string>
#include <vector>

#include "repro/check/call_path.h"
#include "repro/check/check.h"
#include "repro/check/issues.h"

namespace regather::check {

// Two where a part of the path's releases refuses the setting and the rest does not.
std::vector<Answer> answer_by(const Setting& setting, const CallPath& path, const Measured& measured,
                              const std::vector<Measured>& all);

}  // namespace regather::check
