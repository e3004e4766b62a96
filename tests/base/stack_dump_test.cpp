#include "base/stack_dump.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "base/blackbox.h"

namespace regather {
namespace {

// Standard error while it lives.
class Errors {
 public:
  Errors() {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    kept_ = ::dup(STDERR_FILENO);
    ::dup2(ends_[1], STDERR_FILENO);
  }
  ~Errors() {
    ::dup2(kept_, STDERR_FILENO);
    for (const int file : {ends_[0], ends_[1], kept_}) ::close(file);
  }
  std::string text() const {
    std::array<char, 65536> buffer{};
    const ssize_t got = ::read(ends_[0], buffer.data(), buffer.size());
    return got > 0 ? std::string(buffer.data(), static_cast<size_t>(got)) : "";
  }

 private:
  std::array<int, 2> ends_{};
  int kept_ = -1;
};

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(StackDump, NothingHappensBeforeItIsInstalled) {
  const Errors errors;
  dump_stacks();
  EXPECT_EQ(errors.text(), "");
}

TEST(StackDump, ShowsEveryThreadByItsName) {
  install_stack_dump();
  std::atomic<bool> ready{false};
  std::atomic<bool> end{false};
  std::thread other([&] {
    pthread_setname_np(pthread_self(), "rank 1");
    ready = true;
    while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!ready) std::this_thread::yield();
  for (const bool by_signal : {false, true}) {
    const Errors errors;
    if (by_signal) {
      ::raise(SIGUSR1);
    } else {
      dump_stacks();
    }
    const std::string text = errors.text();
    EXPECT_EQ(count(text, "stack of "), 2U) << text;
    EXPECT_EQ(count(text, "stack of rank 1:\n"), 1U) << text;
    EXPECT_GT(count(text, "[0x"), 4U) << text;
  }
  end = true;
  other.join();
}

TEST(StackDump, BeginsWhereTheThreadWasInterrupted) {
  install_stack_dump();
  const Errors errors;
  ::raise(SIGUSR1);
  const std::string text = errors.text();
  const std::string first =
      text.substr(text.find('\n') + 1, text.find('\n', text.find('\n') + 1) - text.find('\n') - 1);
  EXPECT_NE(first.find("libc.so"), std::string::npos) << "raise() itself, not the handler: " << text;
}

TEST(StackDump, ProcessesDoNotInterruptEachOther) {
  install_stack_dump();
  const std::string path = std::filesystem::temp_directory_path() / ("regather-turns-" + std::to_string(::getpid()));
  map_blackbox(path);
  std::filesystem::remove(path);
  constexpr int kProcesses = 4;
  constexpr int kTimes = 100;
  const Errors errors;
  std::array<pid_t, kProcesses> children{};
  for (pid_t& child : children) {
    child = ::fork();
    if (child != 0) continue;
    for (int time = 0; time < kTimes; ++time) dump_stacks();
    ::_exit(0);
  }
  std::string text;
  for (const pid_t child : children) {
    ASSERT_GT(child, 0);
    while (::waitpid(child, nullptr, WNOHANG) == 0) text += errors.text();
  }
  text += errors.text();
  // All were in the same place: what each wrote is the same.
  const std::string one = text.substr(0, text.find("stack of ", 1));
  EXPECT_GT(count(one, "[0x"), 4U);
  std::string all;
  for (int i = 0; i < kProcesses * kTimes; ++i) all += one;
  EXPECT_TRUE(text == all) << count(text, "stack of ") << " stacks, " << text.substr(0, 4 * one.size());
}

// A thread that holds the signal back does not hold up the dump.
TEST(StackDump, AThreadThatDoesNotAnswerIsLeftOut) {
  install_stack_dump();
  std::atomic<bool> ready{false};
  std::atomic<bool> end{false};
  std::thread deaf([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    ready = true;
    while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!ready) std::this_thread::yield();
  const Errors errors;
  const auto begin = std::chrono::steady_clock::now();
  dump_stacks();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(count(errors.text(), "stack of "), 1U);
  end = true;
  deaf.join();
}

}  // namespace
}  // namespace regather
