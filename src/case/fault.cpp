#include "case/fault.h"

#include <fmt/ranges.h>

#include <atomic>
#include <utility>

#include "base/error.h"
#include "case/fixes.h"
#include "case/support.h"

namespace regather {
namespace {

std::atomic<Fault> seeded{Fault::none};

bool is_ddp(const Case& c) { return c.backend == Backend::ddp; }
bool is_fsdp2(const Case& c) { return c.backend == Backend::fsdp2; }
bool shards_optimizer_alone(const Case& c) { return c.backend == Backend::zero1 || c.backend == Backend::zero2; }
bool shards_parameters(const Case& c) { return c.backend == Backend::zero3 || is_fsdp2(c); }
bool is_sharded(const Case& c) { return shards_optimizer_alone(c) || shards_parameters(c); }
bool has_peers(const Case& c) { return c.world > 1; }
bool is_fused(const Case& c) { return c.kernel == Kernel::fused; }
bool trains_base(const Case& c) { return c.frozen != Frozen::lora && c.frozen != Frozen::quantised; }
bool trains_head(const Case& c) { return c.frozen != Frozen::head && trains_base(c); }
// The KL term is a mean over ranks, reduced in the step.
bool has_kl(const Case& c) { return c.loss == Loss::kto; }
bool any(const Case&) { return true; }

struct Seed {
  Fault fault;
  const char* name;
  const char* breaks;
  bool (*turns_red)(const Case&);
};

constexpr Seed kSeeds[] = {
    {Fault::drop_all_reduce, "drop_all_reduce",
     "an all-reduce (of a bucket on DDP and ZeRO-1, -2, KTO's of its KL term) does not happen",
     [](const Case& c) { return (is_ddp(c) || shards_optimizer_alone(c) || has_kl(c)) && has_peers(c); }},
    {Fault::drop_reduce_scatter, "drop_reduce_scatter",
     "ZeRO-3, FSDP2: a rank keeps its own slice of the gradient instead of the sum over ranks",
     [](const Case& c) { return shards_parameters(c) && has_peers(c); }},
    {Fault::shift_shard, "shift_shard", "ZeRO, FSDP2: a shard starts one element or row late", is_sharded},
    {Fault::scale_twice, "scale_twice", "ZeRO, FSDP2: the average over ranks is applied twice",
     [](const Case& c) { return is_sharded(c) && has_peers(c); }},
    {Fault::lose_last_chunk, "lose_last_chunk", "fused loss's kernels: the last chunk of rows is left out", is_fused},
    {Fault::count_pad, "count_pad", "fused loss's kernels: a row's sum has a pad beyond the vocabulary", is_fused},
    {Fault::leave_target, "leave_target", "fused loss's kernels: the gradient by the logits lacks the target's 1",
     is_fused},
    {Fault::scale_rows_twice, "scale_rows_twice", "fused loss's kernels: the rows' coefficients are applied twice",
     is_fused},
    {Fault::keep_sum, "keep_sum",
     "fused loss's kernels: from the second chunk on a row's sum starts at that of the chunk before", is_fused},
    {Fault::swap_gradients, "swap_gradients", "fused loss: two rows of the head's gradient change places",
     [](const Case& c) { return is_fused(c) && trains_head(c); }},
    {Fault::skip_mask, "skip_mask", "loss: masked positions count as targets", any},
    {Fault::stale_shard, "stale_shard", "ZeRO, FSDP2: the step does not reach one parameter (of a shard)",
     [](const Case& c) { return is_sharded(c) && trains_base(c); }},
    {Fault::keep_gradients, "keep_gradients", "all but ZeRO-3: gradients are not cleared between steps",
     [](const Case& c) { return c.backend != Backend::zero3; }},
    {Fault::late_rank_scale, "late_rank_scale",
     "comm: rank 1 alone sees sums scaled by 1 + 5e-5, within ten times the tolerance", has_peers},
    {Fault::lose_fourth_rank, "lose_fourth_rank", "comm: sums leave rank 3 out",
     [](const Case& c) { return c.world > 3; }},
    {Fault::lost_wait, "lost_wait", "comm: a reduction's result is used before it is there",
     [](const Case& c) { return shards_parameters(c) || ((shards_optimizer_alone(c) || has_kl(c)) && has_peers(c)); }},
    {Fault::extra_collective, "extra_collective", "rank 1 enters a collective that the others do not", has_peers},
    {Fault::keep_gathered, "keep_gathered", "ZeRO-3, FSDP2: the step's end leaves parameters gathered",
     [](const Case& c) { return is_fsdp2(c) || (shards_parameters(c) && c.persistence == Persistence::zero); }},
    {Fault::frozen_gradient, "frozen_gradient", "a frozen parameter receives a gradient",
     [](const Case& c) { return c.frozen != Frozen::none; }},
    {Fault::lost_update, "lost_update", "the optimizer skips one parameter", any},
    {Fault::crash_rank, "crash_rank", "rank 1 dies of SIGSEGV in the second backward", has_peers},
    {Fault::hang_rank, "hang_rank", "rank 1 never comes back from the second backward", has_peers},
};

std::vector<Case> make_panel() {
  std::vector<Case> panel;
  const auto add = [&](Case c) {
    c.fixes = recommended_fixes(c.backend, c.loss);
    if (!illegal(c) && !unsupported(c)) panel.push_back(c);
  };
  for (const Backend backend : {Backend::ddp, Backend::zero1, Backend::zero2, Backend::zero3, Backend::fsdp2}) {
    for (const Frozen frozen : {Frozen::none, Frozen::norms, Frozen::lora, Frozen::head, Frozen::embedding}) {
      add({.backend = backend, .frozen = frozen});
    }
    add({.backend = backend, .checkpoint = Checkpoint::reentrant});
    add({.backend = backend, .checkpoint = Checkpoint::nonreentrant, .frozen = Frozen::norms});
    for (const Loss loss : {Loss::grpo, Loss::dpo, Loss::kto}) add({.backend = backend, .loss = loss});
    add({.backend = backend, .kernel = Kernel::eager});
    add({.backend = backend, .kernel = Kernel::chunked});
    add({.backend = backend, .head = Head::tied});
    add({.backend = backend, .head_bias = true});
    add({.backend = backend, .frozen = Frozen::quantised});
    add({.backend = backend, .world = 1});
    add({.backend = backend, .world = 4});
    add({.backend = backend, .accumulate = Accumulate::two});
  }
  add({.backend = Backend::zero3, .persistence = Persistence::huge});
  return panel;
}

std::vector<FaultInfo> make_faults() {
  std::vector<FaultInfo> faults;
  for (const Seed& seed : kSeeds) {
    FaultInfo info{seed.fault, seed.name, seed.breaks, {}};
    for (const Case& c : fault_panel()) {
      if (seed.turns_red(c)) info.red.push_back(id(c));
    }
    faults.push_back(std::move(info));
  }
  return faults;
}

}  // namespace

const std::vector<Case>& fault_panel() {
  static const std::vector<Case> panel = make_panel();
  return panel;
}

const std::vector<FaultInfo>& known_faults() {
  static const std::vector<FaultInfo> all = make_faults();
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

Fault seeded_fault() { return seeded.load(std::memory_order_relaxed); }

bool fault_is(Fault fault) { return seeded.load(std::memory_order_relaxed) == fault; }

}  // namespace regather
