#include "kernels/exp_product_tile.cuh"

namespace regather::kernels::sm90 {

void exp_product_stored(const ExpProduct& problem, Stream stream) {
  if (problem.bias != nullptr) {
    launch<Tile<true, true>>(problem, stream);
  } else {
    launch<Tile<false, true>>(problem, stream);
  }
}

}  // namespace regather::kernels::sm90
