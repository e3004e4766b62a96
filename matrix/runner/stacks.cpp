#include "matrix/runner/stacks.h"

#include <poll.h>

#include <chrono>
#include <string>

#include "matrix/runner/signals.h"

namespace regather::matrix {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPatience = 2;  // seconds
constexpr double kQuiet = 0.25;  // without a word for so long, they have all been written

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

std::vector<int> see_stacks(WorkerProcess& worker) {
  std::vector<int> stopped = worker.ask_for_stacks();
  const Clock::time_point begin = Clock::now();
  size_t seen = std::string::npos;  // until nothing more comes
  while (seconds_since(begin) < kPatience && !SignalScope::interrupted() && seen != worker.error_tail().size()) {
    seen = worker.error_tail().size();
    const Clock::time_point quiet = Clock::now();
    while (seconds_since(quiet) < kQuiet) {
      std::vector<pollfd> files{{worker.errors(), POLLIN, 0}};
      SignalScope::wait(files, kQuiet - seconds_since(quiet));
      worker.read_output();
    }
  }
  return stopped;
}

}  // namespace regather::matrix
