// A worker that dies says where: the backtrace goes to stderr, which the runner keeps.
#pragma once

namespace regather {

// For SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT: writes a backtrace to stderr, then dies of the same signal.
void install_crash_handler();

}  // namespace regather
