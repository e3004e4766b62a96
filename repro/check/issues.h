// The issues of the register that a failure belongs to.
#pragma once

#include <string>
#include <vector>

#include "case/case.h"
#include "repro/entry.h"

namespace regather::check {

// Entries of the mechanism whose axes hold for the case, those that are refuted aside.
std::vector<const repro::Entry*> issues_of(const std::string& mechanism, const Case& c);

}  // namespace regather::check
