// Signals of a program that supervises others, taken only while it waits, so that no arrival is missed.
#pragma once

#include <poll.h>

#include <vector>

namespace regather::matrix {

// While it lives, SIGINT, SIGTERM, SIGHUP and SIGCHLD are held back outside wait(), and SIGPIPE is ignored: a write to
// a worker that has died is an error code. One at a time in a process.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  // Until a descriptor is ready, a signal has come or the time is over.
  static void wait(std::vector<pollfd>& files, double seconds);

  // Whether one of the signals that end a program has come since the scope began.
  static bool interrupted();

  // In a child between fork and exec: signals are again what a new program expects.
  static void restore_in_child();
};

}  // namespace regather::matrix
