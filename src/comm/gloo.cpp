#include "comm/gloo.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>

namespace regather::comm {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds deadline, const std::string& address) {
  // The flight recorder is process-wide and crashes when several groups of one process record into it.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 0);
  auto options = c10d::ProcessGroupGloo::Options::create(deadline);
  const char* interface = address.starts_with("127.") ? nullptr : std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(interface != nullptr && *interface != '\0'
                                 ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                 : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = 1;  // one worker keeps collectives in order and leaves the core to the rank
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace regather::comm
