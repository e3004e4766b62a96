// One regather-worker process: its pipes, its black box, its end. Nothing here waits.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/blackbox.h"
#include "matrix/runner/protocol.h"

namespace regather::matrix {

// How a worker ended: "exit 3", "signal 11 (SIGSEGV)".
std::string describe_status(int wait_status);

class WorkerProcess {
 public:
  // Throws Error("worker") when the process cannot be started; a program that cannot be executed exits with 127.
  // `environment` (NAME=VALUE) comes beside what this process has.
  explicit WorkerProcess(const std::string& program, const std::vector<std::string>& environment = {});
  // Kills what still runs, with every process that the worker has started.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // To a worker that has died nothing happens: its end shows in ended().
  void send(const Request& request);
  // Tells the worker that there is no more work.
  void close_input();

  int output() const { return output_; }
  int errors() const { return errors_; }
  void read_output();  // what has come on both, without blocking
  // The next whole line of its standard output; an endless line comes as its first part.
  std::optional<std::string> next_line();

  // Has each of its processes write its stacks to standard error (base/stack_dump.h). Returns the ranks that cannot,
  // since their processes are stopped.
  std::vector<int> ask_for_stacks() const;

  bool ended() const;
  // Kills the worker when it still runs; its status as waitpid gives it.
  int kill_and_reap();

  // The last part of its standard error since the last send().
  const std::string& error_tail() const { return error_tail_; }
  const BlackBox& box() const { return *box_; }

 private:
  int input_ = -1;
  int output_ = -1;
  int errors_ = -1;
  pid_t pid_ = -1;
  const BlackBox* box_ = nullptr;
  std::string pending_;
  std::string error_tail_;
};

// The worker program: $REGATHER_WORKER, or regather-worker beside this program. Throws Error("worker") when there is
// none.
std::string find_worker();

}  // namespace regather::matrix
