#include "kernels/exp_product_tile.cuh"

namespace regather::kernels::sm90 {

void exp_product_sums(const ExpProduct& problem, Stream stream) {
  if (problem.bias != nullptr) {
    launch<Tile<true, false>>(problem, stream);
  } else {
    launch<Tile<false, false>>(problem, stream);
  }
}

}  // namespace regather::kernels::sm90
