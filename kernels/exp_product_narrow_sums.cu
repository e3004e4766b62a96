// Two groups of warps, each with a tile of its own: one multiplies while the other takes exponentials.
#include "kernels/exp_product_sm90.cuh"
#include "kernels/exp_product_tiles.cuh"

namespace regather::kernels::sm90 {
namespace {

using cute::Int;

template <bool WithBias>
using Tile = Configuration<cute::Shape<Int<128>, Int<128>, Int<64>>, cute::Shape<Int<2>, Int<1>, Int<1>>,
                           cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                           cutlass::epilogue::TmaWarpSpecialized, WithBias, false>;

}  // namespace

void narrow_sums(const ExpProduct& problem, Stream stream) {
  if (problem.bias != nullptr) {
    launch<Tile<true>>(problem, stream);
  } else {
    launch<Tile<false>>(problem, stream);
  }
}

}  // namespace regather::kernels::sm90
