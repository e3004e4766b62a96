#include "matrix/runner/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>

#include "base/error.h"
#include "base/file.h"
#include "base/pipe.h"
#include "base/process.h"
#include "matrix/runner/capture.h"
#include "matrix/runner/signals.h"

namespace regather::matrix {
namespace {

constexpr size_t kLongestLine = 4 << 20;
constexpr size_t kTail = 64 << 10;  // the stacks of many ranks
constexpr int kBoxInChild = 3;

// Memory that two processes share and that leaves nothing behind on any disk, whoever is killed. A worker that cut it
// short would kill this process as it reads.
struct SharedBox {
  int file = -1;
  const BlackBox* box = nullptr;

  SharedBox() {
    file = ::memfd_create("regather-blackbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool sized =
        file >= 0 && ::ftruncate(file, sizeof(BlackBox)) == 0 && ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
    void* memory = sized ? ::mmap(nullptr, sizeof(BlackBox), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    const int error = errno;
    if (memory == MAP_FAILED) close_file(file);
    REGATHER_CHECK(memory != MAP_FAILED, "worker", "no shared memory: {}", std::strerror(error));
    box = static_cast<const BlackBox*>(memory);
  }
  ~SharedBox() {
    close_file(file);
    unmap(box);
  }
  static void unmap(const BlackBox* memory) {
    if (memory != nullptr) ::munmap(const_cast<BlackBox*>(memory), sizeof(BlackBox));
  }
};

// The child's side: nothing here may allocate.
[[noreturn]] void become_worker(const char* program, char** environment, int input, int output, int errors, int box,
                                pid_t parent) {
  ::setpgid(0, 0);
  // A runner that is killed takes its workers along; it may have died before the request was made.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  SignalScope::restore_in_child();
  // Above the numbers that they are copied to, so that no copy overwrites another.
  constexpr int kAbove = 10;
  const int in = ::fcntl(input, F_DUPFD_CLOEXEC, kAbove);
  const int out = ::fcntl(output, F_DUPFD_CLOEXEC, kAbove);
  const int err = ::fcntl(errors, F_DUPFD_CLOEXEC, kAbove);
  const int shared = ::fcntl(box, F_DUPFD_CLOEXEC, kAbove);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::dup2(shared, kBoxInChild);
  ::execle(program, program, "--blackbox", "/proc/self/fd/3", static_cast<char*>(nullptr), environment);
  const char* why = std::strerror(errno);
  for (const char* part : {"cannot execute ", program, ": ", why, "\n"}) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::_exit(127);
}

// Appends what can be read now; false at the end of the file.
bool drain(int file, std::string& to, size_t limit) {
  std::array<char, 65536> buffer;
  while (to.size() <= limit) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got > 0) {
      to.append(buffer.data(), static_cast<size_t>(got));
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return true;
}

}  // namespace

std::string describe_status(int wait_status) {
  if (WIFEXITED(wait_status)) return fmt::format("exit {}", WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("signal {} (SIG{})", signal, name);
}

WorkerProcess::WorkerProcess(const std::string& program, const std::vector<std::string>& environment) {
  Pipe in;
  Pipe out;
  Pipe err;
  SharedBox shared;
  std::vector<std::string> storage;
  std::vector<char*> variables = environment_with(environment, storage);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  REGATHER_CHECK(pid_ >= 0, "worker", "cannot start a process: {}", std::strerror(errno));
  if (pid_ == 0) become_worker(program.c_str(), variables.data(), in.read, out.write, err.write, shared.file, parent);
  ::setpgid(pid_, pid_);  // here too: whichever side comes first
  input_ = take_file(in.write);
  output_ = take_file(out.read);
  errors_ = take_file(err.read);
  for (const int file : {output_, errors_}) ::fcntl(file, F_SETFL, O_NONBLOCK);
  box_ = shared.box;
  shared.box = nullptr;
}

WorkerProcess::~WorkerProcess() {
  kill_and_reap();
  close_file(input_);
  close_file(output_);
  close_file(errors_);
  SharedBox::unmap(box_);
}

void WorkerProcess::send(const Request& request) {
  error_tail_.clear();
  if (input_ >= 0 && !write_all(input_, print_request(request) + "\n")) close_file(input_);
}

void WorkerProcess::close_input() { close_file(input_); }

void WorkerProcess::read_output() {
  if (output_ >= 0 && !drain(output_, pending_, kLongestLine)) close_file(output_);
  if (errors_ >= 0 && !drain(errors_, error_tail_, 16 * kTail)) close_file(errors_);
  if (error_tail_.size() > kTail) error_tail_.erase(0, error_tail_.size() - kTail);
}

std::optional<std::string> WorkerProcess::next_line() {
  const size_t end = pending_.find('\n');
  if (end == std::string::npos && pending_.size() <= kLongestLine) return std::nullopt;
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

std::vector<int> WorkerProcess::ask_for_stacks() const {
  std::vector<int> stopped;
  for (const Process& process : processes_of_group(pid_)) {
    if (process.stopped()) {
      // A rank's process is named after it; a worker whose ranks are threads stops them all.
      constexpr std::string_view kRank = "rank ";
      stopped.push_back(process.name.starts_with(kRank) ? std::atoi(process.name.c_str() + kRank.size()) : 0);
    } else {
      ::kill(process.pid, SIGUSR1);
    }
  }
  return stopped;
}

bool WorkerProcess::ended() const {
  siginfo_t info{};
  return pid_ < 0 ||
         (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_);
}

int WorkerProcess::kill_and_reap() {
  if (pid_ < 0) return 0;
  // Before it is reaped, while its process group's number cannot belong to anybody else.
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

std::string find_worker() {
  std::string path;
  if (const char* given = std::getenv("REGATHER_WORKER"); given != nullptr && *given != '\0') {
    path = given;
  } else {
    std::error_code ignored;
    path = std::filesystem::read_symlink("/proc/self/exe", ignored).replace_filename("regather-worker").string();
  }
  REGATHER_CHECK(::access(path.c_str(), X_OK) == 0, "worker",
                 "no worker program '{}' ({}): build regather-worker beside regather, or set REGATHER_WORKER", path,
                 std::strerror(errno));
  return path;
}

}  // namespace regather::matrix
