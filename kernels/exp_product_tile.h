// The tile of the fused product. Two groups of warps each have a tile of their own and take turns: while one
// multiplies, the other takes exponentials, which at these widths would otherwise be 3 to 14 % of the time. 128 x 192
// is the largest that a group can hold, and so the one that reads least.
#pragma once

#include "kernels/exp_product.h"

namespace regather::kernels::sm90 {

constexpr int kTileRows = 128;
constexpr int kTileColumns = 192;

// A translation unit each, since each takes long to compile.
void exp_product_stored(const ExpProduct& problem, Stream stream);
void exp_product_sums(const ExpProduct& problem, Stream stream);

}  // namespace regather::kernels::sm90
