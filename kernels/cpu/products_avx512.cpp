// Compiled for AVX-512; runs only where the processor has it.
#include "kernels/cpu/vector_products.h"

namespace regather::kernels::cpu {

std::unique_ptr<Products> avx512_products(const ChunkSize& size) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("fma")) return nullptr;
  return std::make_unique<VectorProducts<16, 14>>(size);
}

}  // namespace regather::kernels::cpu
