// Runs one function on every rank of a world: ranks as threads over shared memory, or as processes over gloo.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/world.h"

namespace regather::comm {

// A backend of one rank of `size`, whose waits end after the deadline; ranks of one case meet in `store`.
using MakeTransport = c10::intrusive_ptr<c10d::Backend> (*)(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                            int size, std::chrono::milliseconds deadline);

struct LaunchOptions {
  int world = 2;
  std::chrono::milliseconds deadline{30000};  // for each wait on other ranks
  // Of ranks that a Rendezvous brings together: where their tensors are, and their transport, by default gloo.
  at::Device device = at::kCPU;
  MakeTransport transport = nullptr;
};

// What a rank's function left behind. A rank whose collective failed because another rank left or threw first is
// marked `peer_failed`: its error is a consequence, not a cause.
struct RankEnd {
  std::string result;      // what the function returned
  std::string error_type;  // empty when it returned; "hang" when the deadline passed; "signal N" for a dead process
  std::string error_text;
  bool peer_failed = false;
  bool waited_for = false;  // it never ended, and is the one to blame for that
};

using RankFunction = std::function<std::string(World&)>;

// Ranks as threads of this process over the shared-memory backend. When a rank's function throws, the others' waits
// end with an error that names that rank; no thread outlives the call. Thread names are "rank N".
std::vector<RankEnd> run_threads(const LaunchOptions& options, const RankFunction& function);

// Ranks as forked children over gloo, which meet in a file in memory; results come back through pipes. Children that
// do not end within one and a half deadlines are killed.
std::vector<RankEnd> run_processes(const LaunchOptions& options, const RankFunction& function);

}  // namespace regather::comm
