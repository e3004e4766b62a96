#include "base/stack_dump.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

namespace regather {
namespace {

constexpr int kMostFrames = 64;
constexpr int kAnswerMilliseconds = 200;

std::atomic<bool> installed{false};
std::atomic_flag busy = ATOMIC_FLAG_INIT;
std::atomic<bool> answered{false};

void write_text(const char* text) { static_cast<void>(!::write(STDERR_FILENO, text, std::strlen(text))); }

void on_asked(int /*signal*/) {
  const int error = errno;
  write_own_stack("stack");
  answered = true;
  errno = error;
}

void on_dump(int /*signal*/) {
  const int error = errno;
  dump_stacks();
  errno = error;
}

void ask(pid_t thread) {
  answered = false;
  if (::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR2) != 0) return;
  for (int waited = 0; waited < kAnswerMilliseconds && !answered; ++waited) {
    const timespec moment{0, 1'000'000};
    ::nanosleep(&moment, nullptr);
  }
}

// How the kernel lays out an entry of a folder; readdir() allocates. The length is at 16, the name from 19 on.
constexpr long kLengthAt = 16;
constexpr long kNameAt = 19;

pid_t number(const char* text) {
  pid_t value = 0;
  for (; *text >= '0' && *text <= '9'; ++text) value = value * 10 + (*text - '0');
  return *text == '\0' ? value : 0;
}

void for_each_thread(void (*visit)(pid_t)) {
  const int folder = ::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  std::array<char, 4096> buffer;
  for (long got; (got = ::syscall(SYS_getdents64, folder, buffer.data(), buffer.size())) > 0;) {
    for (long at = 0; at < got;) {
      uint16_t length = 0;
      std::memcpy(&length, buffer.data() + at + kLengthAt, sizeof length);
      if (const pid_t thread = number(buffer.data() + at + kNameAt); thread > 0) visit(thread);
      at += length;
    }
  }
  ::close(folder);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void install_stack_dump() {
  std::array<void*, 1> warm{};
  ::backtrace(warm.data(), static_cast<int>(warm.size()));  // loads the library that it needs
  handle(SIGUSR2, on_asked);
  handle(SIGUSR1, on_dump);
  installed = true;
}

void dump_stacks() {
  if (!installed || busy.test_and_set()) return;
  for_each_thread([](pid_t thread) {
    if (thread == ::syscall(SYS_gettid)) {
      write_own_stack("stack");
    } else {
      ask(thread);
    }
  });
  busy.clear();
}

void write_own_stack(const char* head) {
  std::array<char, 16> name{};
  ::prctl(PR_GET_NAME, name.data());
  write_text(head);
  write_text(" of ");
  write_text(name.data());
  write_text(":\n");
  std::array<void*, kMostFrames> frames{};
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), kMostFrames), STDERR_FILENO);
}

}  // namespace regather
