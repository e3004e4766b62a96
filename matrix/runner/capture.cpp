#include "matrix/runner/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/pipe.h"

namespace regather::matrix {
namespace {

constexpr size_t kMostOutput = 1 << 20;
constexpr size_t kMostErrors = 4 << 10;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (const std::string& s : strings) list.push_back(const_cast<char*>(s.c_str()));
  list.push_back(nullptr);
  return list;
}

// Reads both pipes until both have ended or the time is over; true when they have ended.
bool read_both(Pipe& out, Pipe& err, Captured& said, double seconds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::array<char, 65536> buffer;
  while (out.read >= 0 || err.read >= 0) {
    std::array<pollfd, 2> files{{{out.read, POLLIN, 0}, {err.read, POLLIN, 0}}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (::poll(files.data(), files.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) return false;
    for (size_t i = 0; i < 2; ++i) {
      if (files.at(i).revents == 0) continue;
      const ssize_t got = ::read(files.at(i).fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        close_file((i == 0 ? out : err).read);
      } else if (i == 0) {
        said.output.append(buffer.data(), std::min(static_cast<size_t>(got), kMostOutput - said.output.size()));
      } else {
        said.errors.append(buffer.data(), static_cast<size_t>(got));
        if (said.errors.size() > kMostErrors) said.errors.erase(0, said.errors.size() - kMostErrors);
      }
    }
  }
  return true;
}

}  // namespace

std::vector<char*> environment_with(const std::vector<std::string>& more, std::vector<std::string>& storage) {
  const auto name_of = [](std::string_view variable) { return variable.substr(0, variable.find('=')); };
  storage.clear();
  for (char** at = environ; *at != nullptr; ++at) {
    const bool replaced =
        std::any_of(more.begin(), more.end(), [&](const std::string& other) { return name_of(other) == name_of(*at); });
    if (!replaced) storage.emplace_back(*at);
  }
  storage.insert(storage.end(), more.begin(), more.end());
  return pointers(storage);
}

Captured capture(const std::vector<std::string>& command, const std::vector<std::string>& environment, double seconds) {
  Pipe out;
  Pipe err;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  std::vector<std::string> storage;
  std::vector<char*> variables = environment_with(environment, storage);
  std::vector<char*> arguments = pointers(command);
  pid_t pid = -1;
  const int failed =
      ::posix_spawn(&pid, command.front().c_str(), &actions, nullptr, arguments.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  REGATHER_CHECK(failed == 0, "worker", "cannot start '{}': {}", command.front(), std::strerror(failed));
  close_file(out.write);
  close_file(err.write);
  Captured said;
  if (!read_both(out, err, said, seconds)) ::kill(pid, SIGKILL);
  while (::waitpid(pid, &said.status, 0) < 0 && errno == EINTR) {
  }
  return said;
}

void become(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  std::vector<std::string> storage;
  std::vector<char*> variables = environment_with(environment, storage);
  std::vector<char*> arguments = pointers(command);
  ::execvpe(command.front().c_str(), arguments.data(), variables.data());
  throw Error("worker", fmt::format("cannot start '{}': {}", command.front(), std::strerror(errno)));
}

}  // namespace regather::matrix
