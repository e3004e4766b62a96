// Runs the regather program in a test: its exit code, outputs and files.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace regather {

// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Ended {
  int code = -1;  // the exit code, or 128 + the signal
  std::string out;
  std::string err;
};

// A running regather whose worker is the fake one.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {});
  void signal(int number) const;
  Ended wait();

 private:
  TemporaryFolder folder_;
  int pid_;
};

Ended regather(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {});

std::string read_text(const std::string& path);
size_t count_lines(const std::string& path);

// The processes that a file of FAKE_WORKER_PIDS names and that still run, once they have had a moment to end.
std::vector<int> still_running(const std::string& pids);

}  // namespace regather
