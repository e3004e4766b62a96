#include "matrix/runner/memory.h"

#include <fstream>
#include <optional>
#include <string>

namespace regather::matrix {
namespace {

// "0::/user.slice/job": the group of version 2.
std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "/";
}

// The number after "oom_kill" in a file of names and numbers.
std::optional<int64_t> oom_kills_in(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  for (int64_t count = 0; file >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return std::nullopt;
}

}  // namespace

int64_t oom_kills() {
  if (const auto here = oom_kills_in("/sys/fs/cgroup" + own_group() + "/memory.events")) return *here;
  return oom_kills_in("/proc/vmstat").value_or(0);
}

}  // namespace regather::matrix
