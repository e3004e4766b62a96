#include "matrix/worker/crash_handler.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string_view>

namespace regather {
namespace {

void on_signal(int signal) {
  // Only async-signal-safe calls; backtrace() was called once before, so its library is loaded.
  constexpr std::string_view head = "regather-worker: fatal signal, backtrace:\n";
  static_cast<void>(!::write(STDERR_FILENO, head.data(), head.size()));
  std::array<void*, 64> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  // SA_RESETHAND has put the default back.
  ::raise(signal);
}

}  // namespace

void install_crash_handler() {
  std::array<void*, 1> warm{};
  ::backtrace(warm.data(), static_cast<int>(warm.size()));
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

}  // namespace regather
