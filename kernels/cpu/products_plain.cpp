// For whatever the compiler takes for granted.
#include "kernels/cpu/vector_products.h"

namespace regather::kernels::cpu {

std::unique_ptr<Products> plain_products(const ChunkSize& size) { return std::make_unique<VectorProducts<4, 6>>(size); }

}  // namespace regather::kernels::cpu
