// From departures and ranks to one result.
#pragma once

#include <vector>

#include "case/result.h"

namespace regather::train {

// Sets outcome, signature and also from `departures`: the earliest by step, then phase, then rank comes first. Without
// a departure the outcome is pass when gradients were compared and unchecked when none were.
void settle(CaseResult& result, std::vector<Departure> departures);

// One result from those of the ranks, in rank order.
CaseResult merge(const std::vector<CaseResult>& ranks);

// Of a hang: the others' are the consequence of this rank's, which becomes the outcome.
void blame(CaseResult& result, int rank);

}  // namespace regather::train
