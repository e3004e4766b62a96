// One forked rank: the process, the socket to it, and how it ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "comm/launch.h"

namespace regather::comm {

// Owned by the parent, on one thread. The child runs `body`, sends the RankEnd back, waits to be released (peers may
// still be reading what it sent them) unless it failed, and ends with _exit: no destructor of the parent's runs twice.
class Child {
 public:
  // Forks. `siblings` are the sockets of earlier children, closed in this one. Throws Error when the system refuses.
  Child(const std::function<RankEnd()>& body, const std::vector<int>& siblings);
  ~Child();  // kills and reaps what has not been reaped
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int socket() const { return socket_; }
  bool reported() const { return reported_; }

  // Takes what the socket holds, without blocking longer than that; true once the child has reported or died.
  bool read();
  void release();  // lets a child that succeeded end
  // Whether the process is stopped, by SIGSTOP or a debugger.
  bool stopped() const;
  // Makes it write its stacks to standard error (base/stack_dump.h), or ends it where that is not installed.
  void ask_for_stacks() const;
  void kill();
  // Reaps the process; the report, or "signal N" or "exit N" when there is none.
  RankEnd end();

 private:
  [[noreturn]] static void run(int socket, const std::function<RankEnd()>& body);

  pid_t pid_ = -1;
  int socket_ = -1;
  bool reported_ = false;
  std::string received_;
  RankEnd end_;
};

}  // namespace regather::comm
