// Which public issues a failure here is an instance of.
#pragma once

#include <vector>

#include "case/result.h"
#include "repro/entry.h"

namespace regather::repro {

// Entries that have the failure's mechanism and, where they have any, a signature that it matches: first those that
// the case is written down to show, then those whose main mechanism it is and whose axes the case lies within, the
// narrower ones first; at most `most`. Nothing for a result without a failure.
std::vector<const Entry*> known_as(const CaseResult& result, size_t most = 5);

}  // namespace regather::repro
