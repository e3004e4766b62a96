// Processes as /proc shows them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace regather {

struct Process {
  pid_t pid = -1;
  std::string name;  // at most 15 characters
  char state = '?';  // R, S, D, T, t, Z
  pid_t group = -1;

  // By SIGSTOP or a debugger.
  bool stopped() const { return state == 'T' || state == 't'; }
};

// Nothing when there is no such process.
std::optional<Process> read_process(pid_t pid);

std::vector<Process> processes_of_group(pid_t group);

}  // namespace regather
