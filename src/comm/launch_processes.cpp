#include <ATen/Parallel.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/child.h"
#include "comm/gloo.h"
#include "comm/launch.h"
#include "comm/rank_end.h"

namespace regather::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStacks{300};  // for ranks to write their stacks before they are killed

// Where ranks meet: a file in memory, under a name that every child opens anew. No disk can be too full for it, and
// nothing of it is left, whoever is killed.
class MeetingFile {
 public:
  MeetingFile() : file_(::memfd_create("regather-rendezvous", MFD_CLOEXEC)) {
    REGATHER_CHECK(file_ >= 0, "comm", "no memory for the ranks to meet in: {}", std::strerror(errno));
  }
  ~MeetingFile() { ::close(file_); }
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", file_); }

 private:
  int file_;
};

RankEnd rank_process(const std::string& rendezvous, int rank, const LaunchOptions& options,
                     const RankFunction& function) {
  try {
    pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).c_str());
    at::set_num_threads(1);
    auto store = c10::make_intrusive<c10d::FileStore>(rendezvous, options.world);
    store->setTimeout(options.deadline);
    World world = make_world(make_gloo(store, rank, options.world, options.deadline), c10d::ProcessGroup::GLOO);
    RankEnd end = run_rank(world, function);
    // Tearing gloo down takes milliseconds and may wait on peers; the process ends here and its sockets with it. The
    // group is leaked on purpose.
    c10::intrusive_ptr<c10d::ProcessGroup>(world.group()).release();
    return end;
  } catch (...) {
    return end_of_current_exception();
  }
}

// Until every child has reported or died, or `until`.
void collect(std::vector<Child>& children, Clock::time_point until) {
  std::vector<bool> done(children.size());
  while (std::find(done.begin(), done.end(), false) != done.end()) {
    std::vector<pollfd> sockets;
    std::vector<size_t> owners;
    for (size_t rank = 0; rank < children.size(); ++rank) {
      if (done[rank]) continue;
      sockets.push_back({children[rank].socket(), POLLIN, 0});
      owners.push_back(rank);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return;
    if (::poll(sockets.data(), sockets.size(), static_cast<int>(std::min<int64_t>(left, 60000))) <= 0) continue;
    for (size_t index = 0; index < sockets.size(); ++index) {
      if (sockets[index].revents != 0) done[owners[index]] = children[owners[index]].read();
    }
  }
}

}  // namespace

std::vector<RankEnd> run_processes(const LaunchOptions& options, const RankFunction& function) {
  at::set_num_threads(1);  // a pool of threads does not survive the fork, and its locks might
  const MeetingFile rendezvous;
  std::vector<Child> children;
  std::vector<int> sockets;
  children.reserve(static_cast<size_t>(options.world));
  for (int rank = 0; rank < options.world; ++rank) {
    children.emplace_back([&, rank] { return rank_process(rendezvous.path(), rank, options, function); }, sockets);
    sockets.push_back(children.back().socket());
  }
  // A rank gives up a wait after the deadline; whoever has not ended half of it later hangs outside any wait.
  const std::chrono::milliseconds patience = options.deadline * 3 / 2;
  collect(children, Clock::now() + patience);
  // Those that have not ended show where they are, all at once, and are killed.
  std::vector<bool> hangs;
  std::vector<bool> stopped;
  for (Child& child : children) {
    hangs.push_back(!child.read() && !child.reported());
    stopped.push_back(hangs.back() && child.stopped());
    if (hangs.back() && !stopped.back()) child.ask_for_stacks();
  }
  if (hangs != stopped) std::this_thread::sleep_for(kStacks);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    if (hangs[rank]) {
      children[rank].kill();
    } else {
      children[rank].release();
    }
  }
  const bool any_stopped = std::find(stopped.begin(), stopped.end(), true) != stopped.end();
  std::vector<RankEnd> ends;
  for (size_t rank = 0; rank < children.size(); ++rank) {
    RankEnd end = children[rank].end();
    if (hangs[rank]) {
      end = {};
      end.error_type = "hang";
      end.error_text = fmt::format("rank {} did not end within {} ms and was killed{}", rank, patience.count(),
                                   stopped[rank] ? "; its process was stopped" : "");
      end.waited_for = stopped[rank] || !any_stopped;
    }
    ends.push_back(std::move(end));
  }
  return ends;
}

}  // namespace regather::comm
