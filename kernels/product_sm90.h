// Products for which cuBLASLt's suggestions leave multiprocessors idle: few tiles of a long sum.
#pragma once

#include <cstddef>

#include "kernels/matmul.h"

namespace regather::kernels::sm90 {

// How many kernels there are for such a product; 0 where it is none of theirs.
int product_kernels(const Product& product);
// False, without having done anything, where the kernel cannot be used here.
bool multiply(int kernel, const Product& product, void* workspace, size_t workspace_bytes, Stream stream);

}  // namespace regather::kernels::sm90
