#include "matrix/worker/crash_handler.h"

#include <unistd.h>

#include <csignal>

#include "base/stack_dump.h"

namespace regather {
namespace {

void on_signal(int signal, siginfo_t* info, void* context) {
  // Up to zero: sent by a program, as by kill() or this one's abort(); the kernel's own are above.
  const bool from_outside = info->si_code <= 0 && info->si_pid != ::getpid();
  write_own_stack(from_outside ? "regather-worker: signal from outside, stack" : "regather-worker: fatal signal, stack",
                  context);
  // SA_RESETHAND has put the default back.
  ::raise(signal);
}

}  // namespace

void install_crash_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

}  // namespace regather
