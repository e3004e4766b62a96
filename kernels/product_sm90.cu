#include "kernels/product_sm90.h"

#include "kernels/product_sm90.cuh"

namespace regather::kernels::sm90 {
namespace {

using cute::Int;

template <int Rows, int Columns, class Scheduler>
using Long = ProductConfiguration<cute::Shape<Int<Rows>, Int<Columns>, Int<64>>, cute::Shape<Int<2>, Int<1>, Int<1>>,
                                  cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                                  cutlass::epilogue::TmaWarpSpecializedCooperative, Scheduler, float, false, false>;

// Into how many parts the sums of so many tiles are best cut: few, and nearly whole waves of them.
int splits_of(int64_t tiles) {
  constexpr int kMost = 8;
  constexpr double kCost = 0.004;  // of a part's own traffic
  int best = 1;
  double best_use = 0;
  for (int splits = 1; splits <= kMost; ++splits) {
    const int64_t parts = tiles * splits;
    const int64_t waves = divide_up(parts, multiprocessors());
    const double use = static_cast<double>(parts) / static_cast<double>(waves * multiprocessors()) - kCost * splits;
    if (use > best_use) {
      best_use = use;
      best = splits;
    }
  }
  return best;
}

}  // namespace

int product_kernels(const Product& product) {
  const bool ours = product.out_dtype == Dtype::fp32 && !product.left_transposed && !product.accumulate &&
                    !product.right_transposed && product.in_dtype == Dtype::bf16 && product.alpha == nullptr &&
                    product.columns % 8 == 0 && product.left_pitch % 8 == 0;
  return ours ? 4 : 0;
}

bool multiply(int kernel, const Product& product, void* workspace, size_t workspace_bytes, Stream stream) {
  switch (kernel) {
    case 0:
      return launch_product<Long<128, 256, cutlass::gemm::PersistentScheduler>>(product, Raster::columns_first, 1,
                                                                                workspace, workspace_bytes, stream);
    case 1:
      return launch_product<Long<128, 256, cutlass::gemm::StreamKScheduler>>(product, Raster::columns_first, 1,
                                                                             workspace, workspace_bytes, stream);
    case 2:
      return launch_product<Long<256, 128, cutlass::gemm::StreamKScheduler>>(product, Raster::columns_first, 1,
                                                                             workspace, workspace_bytes, stream);
    case 3: {
      const int splits = splits_of(divide_up(product.rows, 128) * divide_up(product.columns, 256));
      return splits > 1 && launch_product<Long<128, 256, cutlass::gemm::StreamKScheduler>>(
                               product, Raster::columns_first, splits, workspace, workspace_bytes, stream);
    }
    default:
      return false;
  }
}

}  // namespace regather::kernels::sm90
