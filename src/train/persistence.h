// What the axis persistence means for ZeRO-3's options.
#pragma once

#include <cstdint>

#include "case/case.h"
#include "shard/backend.h"

namespace regather::train {

// zero: nothing persists and nothing is gathered ahead, as the card was measured. upstream: DeepSpeed's defaults of
// both; the card's model lies below that threshold as a whole, so that nothing is left to gather ahead either. huge:
// everything persists, whatever the model; gathering ahead is at its default.
inline void set_persistence(shard::BackendOptions& options, Persistence persistence) {
  switch (persistence) {
    case Persistence::zero:
      options.persistence_threshold = 0;
      options.prefetch_bucket_size = 0;
      return;
    case Persistence::upstream:
      options.persistence_threshold = 100'000;
      return;
    case Persistence::huge:
      options.persistence_threshold = INT64_MAX;
  }
}

}  // namespace regather::train
