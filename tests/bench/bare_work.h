// What a case computes at the least: the same steps on one unsharded model, with nothing around them.
#pragma once

#include "case/case.h"
#include "train/reference.h"
#include "train/setting.h"

namespace regather::bench {

// CPU seconds of this thread in each part of `c.steps` steps on one rank.
struct BareSeconds {
  double forward = 0;
  double backward = 0;
  double step = 0;
  double all() const { return forward + backward + step; }
};

// The case's own loss kernel, checkpoints, frozen set and reference model, on the first rank's batches; AdamW is the
// runtime's. Nothing is sharded, reduced, compared or copied. Making the model is not counted. Uses none of the case's
// fixes and takes its backend to be `single`.
BareSeconds bare_work(Case c, const train::Setting& setting, const train::Reference& reference);

}  // namespace regather::bench
