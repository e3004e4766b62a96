// Two groups of warps share a tile.
#include "kernels/exp_product_sm90.cuh"
#include "kernels/exp_product_tiles.cuh"

namespace regather::kernels::sm90 {
namespace {

using cute::Int;

template <bool WithBias>
using Tile = Configuration<cute::Shape<Int<128>, Int<256>, Int<64>>, cute::Shape<Int<2>, Int<1>, Int<1>>,
                           cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                           cutlass::epilogue::TmaWarpSpecializedCooperative, WithBias, false>;

}  // namespace

void wide_sums(const ExpProduct& problem, Stream stream) {
  if (problem.bias != nullptr) {
    launch<Tile<true>>(problem, stream);
  } else {
    launch<Tile<false>>(problem, stream);
  }
}

}  // namespace regather::kernels::sm90
