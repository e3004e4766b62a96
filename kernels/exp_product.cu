#include "kernels/exp_product.h"

#include "kernels/exp_product_sm90.cuh"

namespace regather::kernels {
namespace {

using cute::Int;

template <bool WithBias>
using Tuned = sm90::Configuration<cute::Shape<Int<128>, Int<256>, Int<64>>, cute::Shape<Int<2>, Int<1>, Int<1>>,
                                  cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                                  cutlass::epilogue::TmaWarpSpecializedCooperative, WithBias>;

}  // namespace

void exp_product(const ExpProduct& problem, Stream stream) {
  if (problem.bias != nullptr) {
    sm90::launch<Tuned<true>>(problem, stream);
  } else {
    sm90::launch<Tuned<false>>(problem, stream);
  }
}

}  // namespace regather::kernels
