// A tensor of global sizes of which each rank holds some rows, as PyTorch's DTensor with the placement Shard(0): it
// stands where the whole tensor would, and whoever uses it beside a plain tensor is told so.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/world.h"

namespace regather::shard {

// Rows of every rank but the last ones, which have fewer or none: rows / world, rounded up.
int64_t rows_per_rank(int64_t rows, int world);

// A tensor of `sizes` (one dimension at least) without storage. `local`: this rank's rows, [n, sizes[1], ...], shared,
// not copied. It works as a leaf of autograd with a gradient of its kind. Operators:
// - element-wise ones on operands sharded alike, or with single elements, run on the shard (dispatch.cpp has the list);
// - beside a plain tensor every operator throws c10::Error "NAME got mixed torch.Tensor and DTensor, ...";
// - any other throws c10::Error that says that NAME has no sharding rule. None ever sees the shard instead.
// `world` must outlive every use of full_tensor().
at::Tensor make_sharded(const at::Tensor& local, at::IntArrayRef sizes, comm::World& world);

bool is_sharded(const at::Tensor& tensor);

// This rank's part of a sharded tensor, shared.
const at::Tensor& local_shard(const at::Tensor& sharded);

// The whole tensor on every rank; a collective that blocks. Its gradient is taken as the same on every rank, as DTensor
// does: each rank keeps its own rows of its own gradient, and nothing is summed.
at::Tensor full_tensor(const at::Tensor& sharded);

// The same for many, without gradients, in one all-gather; undefined where undefined, on every rank alike.
std::vector<at::Tensor> full_tensors(const std::vector<at::Tensor>& sharded);

}  // namespace regather::shard
