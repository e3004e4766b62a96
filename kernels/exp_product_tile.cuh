// The kernel of that tile, put together.
#pragma once

#include "kernels/exp_product_sm90.cuh"
#include "kernels/exp_product_tile.h"

namespace regather::kernels::sm90 {

template <bool WithBias, bool Store>
using Tile = Configuration<cute::Shape<cute::Int<kTileRows>, cute::Int<kTileColumns>, cute::Int<64>>,
                           cute::Shape<cute::Int<2>, cute::Int<1>, cute::Int<1>>,
                           cutlass::gemm::KernelTmaWarpSpecializedPingpong, cutlass::epilogue::TmaWarpSpecialized,
                           WithBias, Store>;

}  // namespace regather::kernels::sm90
