#include "case/mechanism.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace regather {

const std::vector<std::string_view>& known_mechanisms() {
  static const std::vector<std::string_view> names{"accumulation_overwritten",
                                                   "accumulation_scaled",
                                                   "adapter_bypassed",
                                                   "ddp_unused",
                                                   "frozen_structure",
                                                   "head_double_touch",
                                                   "head_grad_on_partitioned",
                                                   "head_read_partitioned",
                                                   "kernel_gradient",
                                                   "lifecycle",
                                                   "memory",
                                                   "mixed_dtensor",
                                                   "mixed_dtype",
                                                   "no_grad_input",
                                                   "offload",
                                                   "param_uninitialised",
                                                   "race",
                                                   "ranks_diverged",
                                                   "recompute_changed",
                                                   "recompute_dtype",
                                                   "recompute_freed_frozen",
                                                   "recompute_freed_trainable",
                                                   "recompute_unhooked",
                                                   "reduced_twice",
                                                   "reducer_unarmed",
                                                   "tied_broken",
                                                   "trace_stale",
                                                   "unit_bypassed"};
  return names;
}

void check_mechanism(std::string_view name) {
  const auto& names = known_mechanisms();
  if (std::ranges::binary_search(names, name)) return;
  throw UsageError(fmt::format("'{}' is not a mechanism: expected one of {}", name, fmt::join(names, ", ")));
}

}  // namespace regather
