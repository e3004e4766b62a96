// One rank of a case: build, then forward, backward, compare, step, compare, twice.
#pragma once

#include "case/result.h"
#include "comm/world.h"
#include "train/export.h"
#include "train/reference.h"
#include "train/setting.h"

namespace regather::train {

// Runs the case on this rank and says how it departs from the reference. An error of the case is a departure, not an
// exception; an error that another rank caused (comm::PeerError) ends the run and is not reported. `record`, unless
// null, gets this rank's gradients of every step: its element of the world's GradientRecord.
CaseResult run_rank(comm::World& world, const Case& c, const Setting& setting, const Reference& reference,
                    GradientRecord::value_type* record = nullptr);

}  // namespace regather::train
