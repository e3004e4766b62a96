#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace regather {
namespace {

void redirect(const std::string& path, int to) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(file, to);
  ::close(file);
}

// A process that has ended but was not waited for by init is not running.
bool runs(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return false;
  return text.at(text.rfind(')') + 2) != 'Z';
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "regather-test-XXXXXX";
  path_ = ::mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
  std::filesystem::remove_all(path_, ignored);
}

Program::Program(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment) {
  arguments.insert(arguments.begin(), REGATHER_PROGRAM);
  const std::string out = folder_ / "out";
  const std::string err = folder_ / "err";
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::setenv("REGATHER_WORKER", REGATHER_FAKE_WORKER, 1);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  redirect(out, STDOUT_FILENO);
  redirect(err, STDERR_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(126);
}

void Program::signal(int number) const { ::kill(pid_, number); }

Ended Program::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(folder_ / "out"),
          read_text(folder_ / "err")};
}

Ended regather(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment) {
  return Program(std::move(arguments), environment).wait();
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

size_t count_lines(const std::string& path) {
  const std::string text = read_text(path);
  return static_cast<size_t>(std::ranges::count(text, '\n'));
}

std::vector<int> still_running(const std::string& pids) {
  std::vector<int> left;
  for (int tries = 0; tries < 50; ++tries) {
    left.clear();
    std::ifstream file(pids);
    for (int pid = 0; file >> pid;) {
      if (runs(pid)) left.push_back(pid);
    }
    if (left.empty()) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return left;
}

}  // namespace regather
