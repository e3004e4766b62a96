// Whether the kernel has killed processes of this container for want of memory.
#pragma once

#include <cstdint>

namespace regather::matrix {

// How often so far: in the control group of this process and those below it, or in the whole machine where the group is
// not one of version 2; 0 where neither can be read.
int64_t oom_kills();

}  // namespace regather::matrix
