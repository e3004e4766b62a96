// A linear layer's weight in 4 bits, as QLoRA stores and uses it (Dettmers et al. 2023): NF4 codes, two to a byte, and
// a scale for each block of values. Layout and arithmetic are those of bitsandbytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace regather::model {

// How to read the bytes. It stays beside the parameter, whole on every rank: as in bitsandbytes it is neither parameter
// nor buffer, so that no backend broadcasts, gathers or shards it.
struct Quantisation {
  std::vector<int64_t> sizes;  // of the dense weight
  at::Tensor scales;           // float32: the largest absolute value of each block of 64, in row-major order
};

struct PackedWeight {
  at::Tensor packed;  // [n, 1]; the earlier of two values is in a byte's upper half
  std::shared_ptr<const Quantisation> quantisation;
};

// Rounds each value to the nearest code of its block, of ties the lower one. `storage` is the dtype that the bytes pass
// for: kByte, or a float dtype for a backend that shards nothing else; the bytes are then no numbers. Odd ends are
// zeros.
PackedWeight pack(const at::Tensor& weight, at::ScalarType storage);

// The dense weight, worked out in float32. Packing it again gives the same bytes.
at::Tensor dequantise(const at::Tensor& packed, const Quantisation& quantisation, at::ScalarType dtype);

// x W^T. Backward dequantises once more: the graph keeps the bytes, not the dense weight. It keeps them as
// bitsandbytes does, on the node itself as a view of the parameter, with two consequences:
// - no saved-tensor hook sees them, so a checkpoint neither holds nor compares them;
// - a backend that gives the parameter other data (ZeRO-3 at a release) does not free these bytes while the graph
//   lives, and backward reads those of the forward.
at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& packed, std::shared_ptr<const Quantisation> how);

}  // namespace regather::model
