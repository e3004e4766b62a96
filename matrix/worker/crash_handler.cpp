#include "matrix/worker/crash_handler.h"

#include <csignal>

#include "base/stack_dump.h"

namespace regather {
namespace {

void on_signal(int signal) {
  write_own_stack("regather-worker: fatal signal, stack");
  // SA_RESETHAND has put the default back.
  ::raise(signal);
}

}  // namespace

void install_crash_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

}  // namespace regather
