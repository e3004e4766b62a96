// The metadata that a checkpoint prints when a recomputed tensor is not the saved one, and in what way they differ.
#pragma once

#include <string_view>

namespace regather::repro {

enum class Recomputed {
  unasked,
  absent,   // no metadata in the text
  zero,     // [N] -> [0]
  doubled,  // one dimension is twice what it was
  near,     // one dimension is off by a few
  dtype,    // only the dtype
  order,    // another number of dimensions
  other
};
const char* name(Recomputed how);
Recomputed parse_recomputed(std::string_view text);  // throws UsageError

// Of all pairs in the text what most of them are. Reads "saved metadata: {'shape': torch.Size([4096]), 'dtype': ...}"
// with "recomputed metadata: ..." after it, and short forms as people quote them: "saved torch.Size([4096]) recomputed
// torch.Size([0])", "[4096] -> [0]", "saved dtype torch.bfloat16 recomputed dtype torch.float32".
Recomputed compare_metadata(std::string_view message);

}  // namespace regather::repro
