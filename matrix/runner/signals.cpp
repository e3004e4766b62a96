#include "matrix/runner/signals.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace regather::matrix {
namespace {

constexpr std::array kHandled{SIGINT, SIGTERM, SIGHUP, SIGCHLD};

volatile sig_atomic_t ending = 0;
sigset_t outer_mask;
std::array<struct sigaction, kHandled.size()> outer_actions;
struct sigaction outer_pipe;

void handle(int signal) {
  if (signal != SIGCHLD) ending = 1;
}

struct sigaction action(void (*handler)(int)) {
  struct sigaction a {};
  a.sa_handler = handler;
  sigemptyset(&a.sa_mask);
  return a;
}

}  // namespace

SignalScope::SignalScope() {
  ending = 0;
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : kHandled) sigaddset(&held, signal);
  sigprocmask(SIG_BLOCK, &held, &outer_mask);
  const struct sigaction handler = action(handle);
  for (size_t i = 0; i < kHandled.size(); ++i) sigaction(kHandled[i], &handler, &outer_actions[i]);
  const struct sigaction ignore = action(SIG_IGN);
  sigaction(SIGPIPE, &ignore, &outer_pipe);
}

SignalScope::~SignalScope() {
  for (size_t i = 0; i < kHandled.size(); ++i) sigaction(kHandled[i], &outer_actions[i], nullptr);
  sigaction(SIGPIPE, &outer_pipe, nullptr);
  sigprocmask(SIG_SETMASK, &outer_mask, nullptr);
}

void SignalScope::wait(std::vector<pollfd>& files, double seconds) {
  const double bounded = std::clamp(seconds, 0.0, 3600.0);
  timespec time{};
  time.tv_sec = static_cast<time_t>(bounded);
  time.tv_nsec = static_cast<long>((bounded - std::floor(bounded)) * 1e9);
  if (ppoll(files.data(), files.size(), &time, &outer_mask) < 0) {
    for (pollfd& file : files) file.revents = 0;
  }
}

bool SignalScope::interrupted() { return ending != 0; }

void SignalScope::restore_in_child() {
  const struct sigaction standard = action(SIG_DFL);
  for (const int signal : kHandled) sigaction(signal, &standard, nullptr);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) sigaction(ignored, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace regather::matrix
