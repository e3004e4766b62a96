// NCCL, of the library for CUDA alone.
#pragma once

#include "comm/launch.h"

namespace regather::comm {

// A MakeTransport. On a host with fewer GPUs than ranks these share GPUs, which NCCL refuses unless each rank says that
// its host is another: then, and where nothing else is set, they talk over the loopback interface.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds deadline);

}  // namespace regather::comm
