// gloo over processes, from the c10d::ProcessGroupGloo inside libtorch.
//
// Sums on two ranks are bitwise those of the shared-memory transport (addition commutes); with more ranks gloo adds in
// an order of its own, and rounds half types at each hop.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace regather::comm {

// Connects to the other ranks through `store`; `address` is this host's, by which they reach it (GLOO_SOCKET_IFNAME
// names an interface instead where the address is not the loopback's). Blocks until all have come. Works belong to
// the rank; gloo's own threads fill their outputs. Throws gloo's exceptions ("Timed out waiting" past `deadline`,
// "Connection closed by peer" when another process died). SIGPIPE must be ignored by the process.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds deadline,
                                            const std::string& address = "127.0.0.1");

}  // namespace regather::comm
