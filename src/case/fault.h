// Seeded faults: switches that break the runtime in one place, so that every check is shown to go red.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regather {

enum class Fault {
  none,
  drop_all_reduce,      // DDP: the bucket's all-reduce does not happen
  drop_reduce_scatter,  // ZeRO-3: a rank keeps its own slice of the gradient instead of the sum
  shift_shard,          // ZeRO-3: a shard starts one element late
  scale_twice,          // ZeRO-3: the average over ranks is applied twice
  lose_last_chunk,      // fused loss: the last chunk of tokens is left out
  swap_gradients,       // fused loss: two rows of the head's gradient change places
  skip_mask,            // loss: masked positions count
  stale_shard,          // ZeRO-3: the step does not reach one parameter's shard (shows in step 1)
  late_rank_scale,      // comm: rank 1 alone sees sums scaled by 1 + 5e-5 (within ten times the tolerance)
  keep_gathered,        // ZeRO-3: the epilogue leaves one parameter gathered
  lost_wait,            // comm: a work is used before it has completed
  skip_rng_restore,     // checkpoint: recompute draws other random numbers
  last_rank_pad,    // ZeRO-3: the last rank's padding is summed into its shard (shows where sizes are uneven: world 4)
  frozen_gradient,  // a frozen parameter receives a gradient
  lost_update,      // the optimizer skips one parameter
};

struct FaultInfo {
  Fault fault;
  std::string name;
  std::string breaks;            // one line: what the switch breaks
  std::vector<std::string> red;  // ids that it must turn red; every other supported case stays green
};
const std::vector<FaultInfo>& known_faults();

// "" is none; throws UsageError naming the known faults.
Fault parse_fault(std::string_view name);

// Process-wide: set once by the worker before a case runs, read by the one place that the fault breaks.
void seed_fault(Fault fault);
bool fault_is(Fault fault);

}  // namespace regather
