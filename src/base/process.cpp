#include "base/process.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace regather {

// "PID (NAME) STATE PARENT GROUP ...": the name may hold anything, parentheses and blanks too.
std::optional<Process> read_process(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t begin = line.find('(');
  const size_t end = line.rfind(')');
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  Process process{.pid = pid, .name = line.substr(begin + 1, end - begin - 1)};
  pid_t parent = -1;
  std::istringstream(line.substr(end + 1)) >> process.state >> parent >> process.group;
  return process;
}

std::vector<Process> processes_of_group(pid_t group) {
  std::vector<Process> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (read.ec != std::errc() || read.ptr != name.data() + name.size()) continue;
    auto process = read_process(pid);
    if (process && process->group == group) found.push_back(std::move(*process));
  }
  return found;
}

}  // namespace regather
