#include <ATen/Parallel.h>
#include <pthread.h>

#include <memory>
#include <thread>
#include <vector>

#include "comm/launch.h"
#include "comm/meeting.h"
#include "comm/rank_end.h"
#include "comm/shared_memory.h"

namespace regather::comm {
namespace {

RankEnd rank_thread(const std::shared_ptr<Meeting>& meeting, int rank, const RankFunction& function) {
  pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).c_str());
  RankEnd end;
  try {
    at::init_num_threads();  // the process-wide setting reaches a new thread only when asked for
    World world = make_world(c10::make_intrusive<SharedMemory>(meeting, rank), c10d::ProcessGroup::CUSTOM);
    end = run_rank(world, function);
    // Before the world goes: the group's end must not read as a normal return.
    if (!end.error_type.empty()) meeting->leave(rank, end.error_type + ": " + end.error_text);
  } catch (...) {
    end = end_of_current_exception();
    meeting->leave(rank, end.error_type + ": " + end.error_text);
  }
  meeting->leave(rank);
  return end;
}

}  // namespace

// Thread counts are the process's: ranks share its cores, so each computes on one thread. It stays so afterwards.
std::vector<RankEnd> run_threads(const LaunchOptions& options, const RankFunction& function) {
  at::set_num_threads(1);
  const auto meeting = std::make_shared<Meeting>(options.world, options.deadline);
  std::vector<RankEnd> ends(static_cast<size_t>(options.world));
  {
    std::vector<std::jthread> threads;
    threads.reserve(ends.size());
    for (int rank = 0; rank < options.world; ++rank) {
      threads.emplace_back([&, rank] { ends[static_cast<size_t>(rank)] = rank_thread(meeting, rank, function); });
    }
    meeting->watch();
  }
  return ends;
}

}  // namespace regather::comm
