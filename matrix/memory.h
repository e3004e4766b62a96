// Whether the kernel has killed processes of this container for want of memory.
#pragma once

#include <cstdint>

namespace regather::matrix {

// How often so far, in the control group (version 2) of this process; 0 where that cannot be read.
int64_t oom_kills();

}  // namespace regather::matrix
