// A worker that dies says where: the backtrace goes to stderr, which the runner keeps.
#pragma once

namespace regather {

// For SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT: writes the thread's stack to stderr, and whether another process has
// sent the signal, then dies of it. After install_stack_dump().
void install_crash_handler();

}  // namespace regather
