// The kernels that exp_product chooses from, a translation unit each, since each takes long to compile.
#pragma once

#include "kernels/exp_product.h"

namespace regather::kernels::sm90 {

void narrow_stored(const ExpProduct& problem, Stream stream);
void narrow_sums(const ExpProduct& problem, Stream stream);
void wide_stored(const ExpProduct& problem, Stream stream);
void wide_sums(const ExpProduct& problem, Stream stream);

}  // namespace regather::kernels::sm90
