// Reductions over the ranks' buffers, in rank order whatever the order of arrival: the same bits on every run.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regather::comm {

// out[i] = inputs[0][i] op inputs[1][i] op ...; SUM, AVG, PRODUCT, MIN and MAX of floating and integer types. Half and
// bfloat16 accumulate in float and round once; integers divide towards zero. A NaN stays a NaN under MIN and MAX. `out`
// may be one of the inputs. Throws Error for another reduction or dtype.
void reduce(c10::ScalarType dtype, c10d::ReduceOp::RedOpType op, const std::vector<const std::byte*>& inputs,
            std::byte* out, int64_t numel);

// Throws what reduce() would.
void check_reduction(c10::ScalarType dtype, c10d::ReduceOp::RedOpType op, const char* name);

}  // namespace regather::comm
