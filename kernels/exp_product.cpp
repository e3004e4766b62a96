#include "kernels/exp_product.h"

#include "kernels/exp_product_tile.h"

namespace regather::kernels {

SumTile sum_tile() { return {sm90::kTileRows, sm90::kTileColumns}; }

void exp_product(const ExpProduct& problem, Stream stream) {
  if (problem.exponentials == nullptr) {
    sm90::exp_product_sums(problem, stream);
  } else {
    sm90::exp_product_stored(problem, stream);
  }
}

}  // namespace regather::kernels
