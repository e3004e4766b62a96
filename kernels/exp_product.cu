#include "kernels/exp_product.h"

#include "kernels/exp_product_tiles.cuh"

namespace regather::kernels {
namespace {

// Up to this width a tile's products take too little time to hide its exponentials behind another tile's, unless two
// groups of warps take turns; above it the larger tile, which reads less, wins.
constexpr int64_t kNarrow = 2048;

}  // namespace

SumTile sum_tile(int64_t width) {
  return width <= kNarrow ? SumTile{128, 128} : SumTile{128, 256};
}

void exp_product(const ExpProduct& problem, Stream stream) {
  const bool narrow = problem.width <= kNarrow;
  if (problem.exponentials == nullptr) {
    (narrow ? sm90::narrow_sums : sm90::wide_sums)(problem, stream);
  } else {
    (narrow ? sm90::narrow_stored : sm90::wide_stored)(problem, stream);
  }
}

}  // namespace regather::kernels
