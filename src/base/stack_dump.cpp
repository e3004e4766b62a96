#include "base/stack_dump.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "base/blackbox.h"

namespace regather {
namespace {

constexpr int kMostFrames = 64;
constexpr size_t kLongestHead = 128;
constexpr int kAnswerMilliseconds = 200;
constexpr int kTurnMilliseconds = 500;  // whoever holds its turn longer has been stopped or killed

std::atomic<bool> installed{false};
std::atomic_flag busy = ATOMIC_FLAG_INIT;
std::atomic<bool> answered{false};

const void* interrupted = nullptr;  // context of the thread that writes the dump

void pause() {
  const timespec moment{0, 1'000'000};
  ::nanosleep(&moment, nullptr);
}

// Ranks that are processes share standard error: one of them writes at a time.
class Turn {
 public:
  Turn() {
    for (int waited = 0; waited < kTurnMilliseconds; ++waited) {
      int nobody = 0;
      if (blackbox().writer.compare_exchange_strong(nobody, own_)) return;
      pause();
    }
    blackbox().writer = own_;
  }
  ~Turn() {
    int mine = own_;
    blackbox().writer.compare_exchange_strong(mine, 0);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int own_ = ::getpid();
};

// Where a signal found the thread.
const void* interrupted_at(const void* context) {
  if (context == nullptr) return nullptr;
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(machine.pc);
#else
  static_cast<void>(machine);
  return nullptr;
#endif
}

void on_asked(int /*signal*/, siginfo_t* /*info*/, void* context) {
  const int error = errno;
  write_own_stack("stack", context);
  answered = true;
  errno = error;
}

void on_dump(int /*signal*/, siginfo_t* /*info*/, void* context) {
  const int error = errno;
  interrupted = context;
  dump_stacks();
  interrupted = nullptr;
  errno = error;
}

void ask(pid_t thread) {
  answered = false;
  if (::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR2) != 0) return;
  for (int waited = 0; waited < kAnswerMilliseconds && !answered; ++waited) {
    pause();
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

void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
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
      write_own_stack("stack", interrupted);
    } else {
      ask(thread);
    }
  });
  busy.clear();
}

void write_own_stack(const char* head, const void* context) {
  std::array<void*, kMostFrames> frames{};
  const auto end = frames.begin() + ::backtrace(frames.data(), kMostFrames);
  auto begin = std::find(frames.begin(), end, interrupted_at(context));
  if (begin == end) begin = frames.begin();

  const Turn turn;
  std::array<char, kLongestHead> line{};
  std::array<char, 16> name{};
  ::prctl(PR_GET_NAME, name.data());
  char* at = line.data();
  for (const char* part : {head, " of ", static_cast<const char*>(name.data()), ":\n"}) {
    at = ::stpncpy(at, part, static_cast<size_t>(line.data() + line.size() - at));
  }
  static_cast<void>(!::write(STDERR_FILENO, line.data(), static_cast<size_t>(at - line.data())));
  ::backtrace_symbols_fd(&*begin, static_cast<int>(end - begin), STDERR_FILENO);
}

}  // namespace regather
