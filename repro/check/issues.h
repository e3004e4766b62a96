// The issues of the register that a failure belongs to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "case/case.h"
#include "repro/entry.h"

namespace regather::check {

// The reproduced and recognised entries whose first mechanism this is, whose axes hold for the case (the number of
// ranks and the like aside), and of whose releases none is another than these; those with the most axes first.
// `releases`: package -> version, or of TRL a range.
std::vector<const repro::Entry*> issues_of(const std::string& mechanism, const Case& c,
                                           const std::map<std::string, std::string>& releases);

}  // namespace regather::check
