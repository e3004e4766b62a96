// Seeded faults: switches that break the runtime in one place, so that every check is shown to go red.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "case/case.h"

namespace regather {

enum class Fault {
  none,
  drop_all_reduce,      // an all-reduce does not happen: of a bucket (DDP, ZeRO-1, -2), KTO's of its KL term
  drop_reduce_scatter,  // ZeRO-3, FSDP2: a rank keeps its own slice of the gradient instead of the sum
  shift_shard,          // ZeRO, FSDP2: a shard starts one element or row late
  scale_twice,          // ZeRO, FSDP2: the average over ranks is applied twice
  lose_last_chunk,      // fused loss's kernels: the last chunk of rows is left out
  count_pad,            // fused loss's kernels: sums have a pad beyond the vocabulary
  leave_target,         // fused loss's kernels: the gradient by the logits lacks the target's 1
  scale_rows_twice,     // fused loss's kernels: the rows' coefficients are applied twice
  keep_sum,             // fused loss's kernels: a row's sum starts at that of the chunk before (second chunk on)
  swap_gradients,       // fused loss: two rows of the head's gradient change places
  skip_mask,            // loss: masked positions count
  stale_shard,          // ZeRO, FSDP2: the step does not reach one parameter (of a shard)
  keep_gradients,       // all but ZeRO-3: gradients are not cleared between steps (shows in step 1 alone)
  late_rank_scale,      // comm: rank 1 alone sees sums scaled by 1 + 5e-5 (within ten times the tolerance)
  lose_fourth_rank,     // comm: sums leave rank 3 out (shows in worlds of four and more)
  lost_wait,         // comm: a reduction's result is used before it is there (ZeRO-3 waits; DDP's reducer has a future)
  extra_collective,  // rank 1 enters a collective that the others do not
  keep_gathered,     // ZeRO-3, FSDP2: the step's end leaves parameters gathered
  frozen_gradient,   // a frozen parameter receives a gradient
  lost_update,       // the optimizer skips one parameter
  crash_rank,        // rank 1 dies of SIGSEGV in the second backward
  hang_rank,         // rank 1 never comes back from the second backward
  skip_rng_restore,  // checkpoint: the recompute draws other random numbers. Not in known_faults(): no case draws any;
                     // the checkpoint's own tests turn it red
};

struct FaultInfo {
  Fault fault;
  std::string name;
  std::string breaks;            // one line: what the switch breaks
  std::vector<std::string> red;  // the ids of fault_panel() that it must turn red; all others there stay green
};
const std::vector<FaultInfo>& known_faults();

// The cases on which faults are tried, all green without one: the supported part of the card with recommended fixes,
// and other worlds, heads, kernels and thresholds.
const std::vector<Case>& fault_panel();

// "" is none; throws UsageError naming the known faults.
Fault parse_fault(std::string_view name);

// Process-wide: set once by the worker before a case runs, read by the one place that the fault breaks.
void seed_fault(Fault fault);
Fault seeded_fault();
bool fault_is(Fault fault);

}  // namespace regather
