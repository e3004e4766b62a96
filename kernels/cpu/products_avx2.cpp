// Compiled for AVX2 and FMA; runs only where the processor has them.
#include "kernels/cpu/vector_products.h"

namespace regather::kernels::cpu {

std::unique_ptr<Products> avx2_products(const ChunkSize& size) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return nullptr;
  return std::make_unique<VectorProducts<8, 6>>(size);
}

}  // namespace regather::kernels::cpu
