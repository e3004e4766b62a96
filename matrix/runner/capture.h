// Runs a program to its end and keeps what it prints.
#pragma once

#include <string>
#include <vector>

namespace regather::matrix {

struct Captured {
  int status = 0;      // as waitpid gives it
  std::string output;  // the first MiB of its standard output
  std::string errors;  // the end of its standard error
};

// `environment` (NAME=VALUE) beside what this process has. Killed after `seconds`. Throws Error("worker") when it
// cannot be started.
Captured capture(const std::vector<std::string>& command, const std::vector<std::string>& environment, double seconds);

// Becomes the program: on success it does not return. Throws Error("worker").
[[noreturn]] void become(const std::vector<std::string>& command, const std::vector<std::string>& environment);

// This process's environment with these on top, as execve takes it: the pointers live as long as `storage`.
std::vector<char*> environment_with(const std::vector<std::string>& more, std::vector<std::string>& storage);

}  // namespace regather::matrix
