#include "comm/nccl.h"

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <string>

namespace regather::comm {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds deadline) {
  const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), /*overwrite=*/0); };
  // A wait that is over ends with an error in the rank that waited, not with the process.
  set("TORCH_NCCL_BLOCKING_WAIT", "1");
  set("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0");
  set("TORCH_NCCL_ENABLE_MONITORING", "0");
  set("TORCH_NCCL_DUMP_ON_TIMEOUT", "0");
  // torchrun says how many of the ranks are on this host; elsewhere all are taken to be.
  const char* here = std::getenv("LOCAL_WORLD_SIZE");
  if ((here == nullptr ? size : std::atoi(here)) > c10::cuda::device_count()) {
    set("NCCL_HOSTID", "regather-rank-" + std::to_string(rank));
    set("NCCL_SOCKET_IFNAME", "lo");
    set("NCCL_IB_DISABLE", "1");
  }
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = deadline;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  nccl->setSequenceNumberForGroup();
  return nccl;
}

}  // namespace regather::comm
