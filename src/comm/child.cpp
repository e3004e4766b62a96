#include "comm/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/process.h"

namespace regather::comm {
namespace {

void put(std::string& out, const std::string& text) {
  const uint64_t size = text.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += text;
}

// False when `in` does not hold a whole text at `at` yet.
bool take(const std::string& in, size_t& at, std::string& text) {
  uint64_t size = 0;
  if (in.size() - at < sizeof size) return false;
  std::memcpy(&size, in.data() + at, sizeof size);
  if (in.size() - at - sizeof size < size) return false;
  text = in.substr(at + sizeof size, size);
  at += sizeof size + size;
  return true;
}

std::string packed(const RankEnd& end) {
  std::string out;
  put(out, end.result);
  put(out, end.error_type);
  put(out, end.error_text);
  put(out, end.peer_failed ? "1" : "0");
  return out;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("signal {} (SIG{})", number, name);
}

bool unpack(const std::string& in, RankEnd& end) {
  size_t at = 0;
  std::string peer;
  if (!take(in, at, end.result) || !take(in, at, end.error_type) || !take(in, at, end.error_text) ||
      !take(in, at, peer)) {
    return false;
  }
  end.peer_failed = peer == "1";
  return true;
}

}  // namespace

Child::Child(const std::function<RankEnd()>& body, const std::vector<int>& siblings) {
  std::array<int, 2> ends{};
  REGATHER_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "comm", "socketpair: {}",
                 std::strerror(errno));
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    // Nobody is left to reap a rank whose launcher has died.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::close(ends[0]);
    for (const int sibling : siblings) ::close(sibling);
    run(ends[1], body);
  }
  const int error = errno;
  ::close(ends[1]);
  socket_ = ends[0];
  if (pid_ < 0) {
    ::close(socket_);
    throw Error("comm", fmt::format("fork: {}", std::strerror(error)));
  }
  ::fcntl(socket_, F_SETFL, O_NONBLOCK);
}

void Child::run(int socket, const std::function<RankEnd()>& body) {
  ::signal(SIGPIPE, SIG_IGN);
  const RankEnd end = body();
  const std::string report = packed(end);
  size_t sent = 0;
  while (sent < report.size()) {
    const ssize_t count = ::write(socket, report.data() + sent, report.size() - sent);
    if (count < 0 && errno != EINTR) ::_exit(1);
    if (count > 0) sent += static_cast<size_t>(count);
  }
  // A failed rank goes at once: its peers see the broken connection.
  char word = 0;
  while (end.error_type.empty() && ::read(socket, &word, 1) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      reported_(other.reported_),
      received_(std::move(other.received_)),
      end_(std::move(other.end_)) {}

Child::~Child() {
  if (pid_ > 0) {
    kill();
    ::waitpid(pid_, nullptr, 0);
  }
  if (socket_ >= 0) ::close(socket_);
}

bool Child::read() {
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t count = ::read(socket_, buffer.data(), buffer.size());
    if (count > 0) {
      received_.append(buffer.data(), static_cast<size_t>(count));
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      reported_ = reported_ || unpack(received_, end_);
      return true;
    } else if (errno == EAGAIN) {
      reported_ = reported_ || unpack(received_, end_);
      return reported_;
    }
  }
}

void Child::release() {
  const char word = 'r';
  // A child that is gone cannot be released: nothing to do about it.
  if (::send(socket_, &word, 1, MSG_NOSIGNAL) < 0) return;
}

bool Child::stopped() const {
  const auto process = read_process(pid_);
  return process && process->stopped();
}

void Child::ask_for_stacks() const { ::kill(pid_, SIGUSR1); }

void Child::kill() { ::kill(pid_, SIGKILL); }

RankEnd Child::end() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (reported_) return end_;
  RankEnd end;
  end.error_type = WIFSIGNALED(status) ? signal_name(WTERMSIG(status))
                                       : fmt::format("exit {}", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  end.error_text = WIFSIGNALED(status) ? fmt::format("the rank's process died: {}", ::strsignal(WTERMSIG(status)))
                                       : "the rank's process ended without a report";
  return end;
}

}  // namespace regather::comm
