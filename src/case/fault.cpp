#include "case/fault.h"

#include <fmt/ranges.h>

#include <atomic>

#include "base/error.h"

namespace regather {
namespace {

std::atomic<Fault> seeded{Fault::none};

constexpr const char* kDdp = "ddp/sft/fix=redirect";
constexpr const char* kZero3 = "zero3/sft/fix=gather+recompute_hold+redirect";

}  // namespace

const std::vector<FaultInfo>& known_faults() {
  static const std::vector<FaultInfo> all{
      {Fault::drop_all_reduce, "drop_all_reduce", "DDP: a bucket's all-reduce does not happen", {kDdp}},
      {Fault::drop_reduce_scatter,
       "drop_reduce_scatter",
       "ZeRO-3: a rank keeps its own slice of the gradient instead of the sum over ranks",
       {kZero3}},
      {Fault::shift_shard, "shift_shard", "ZeRO-3: a shard starts one element late", {kZero3}},
      {Fault::scale_twice, "scale_twice", "ZeRO-3: the average over ranks is applied twice", {kZero3}},
      {Fault::lose_last_chunk, "lose_last_chunk", "fused loss: the last chunk of tokens is left out", {kDdp, kZero3}},
      {Fault::swap_gradients,
       "swap_gradients",
       "fused loss: two rows of the head's gradient change places",
       {kDdp, kZero3}},
      {Fault::skip_mask, "skip_mask", "loss: masked positions count as targets", {kDdp, kZero3}},
      {Fault::stale_shard, "stale_shard", "ZeRO-3: the step does not reach one parameter's shard", {kZero3}},
      {Fault::late_rank_scale,
       "late_rank_scale",
       "comm: rank 1 alone sees sums scaled by 1 + 5e-5, within ten times the tolerance",
       {kZero3, kDdp}},
      {Fault::keep_gathered, "keep_gathered", "ZeRO-3: the epilogue leaves one parameter gathered", {kZero3}},
      {Fault::lost_wait, "lost_wait", "comm: a work is used before it has completed", {kZero3}},
      {Fault::skip_rng_restore,
       "skip_rng_restore",
       "checkpoint: the recompute draws other random numbers than the forward",
       {"zero3/sft/checkpoint=nonreentrant/fix=gather+recompute_hold+redirect",
        "ddp/sft/checkpoint=reentrant/fix=redirect"}},
      {Fault::last_rank_pad,
       "last_rank_pad",
       "ZeRO-3: the last rank's padding is summed into its shard, where sizes do not divide evenly",
       {"zero3/sft/world=4/fix=gather+recompute_hold+redirect"}},
      {Fault::frozen_gradient,
       "frozen_gradient",
       "a frozen parameter receives a gradient",
       {"zero3/sft/frozen=norms/fix=gather+recompute_hold+redirect", "ddp/sft/frozen=norms/fix=redirect"}},
      {Fault::lost_update, "lost_update", "the optimizer skips one parameter", {kDdp, kZero3}},
  };
  return all;
}

Fault parse_fault(std::string_view name) {
  if (name.empty()) return Fault::none;
  std::vector<std::string_view> names;
  for (const FaultInfo& info : known_faults()) {
    if (info.name == name) return info.fault;
    names.push_back(info.name);
  }
  throw UsageError(fmt::format("'{}' is not a fault: expected one of {}", name, fmt::join(names, ", ")));
}

void seed_fault(Fault fault) { seeded.store(fault, std::memory_order_relaxed); }

bool fault_is(Fault fault) { return seeded.load(std::memory_order_relaxed) == fault; }

}  // namespace regather
