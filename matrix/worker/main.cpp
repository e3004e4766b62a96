// regather-worker: runs the cases that it reads, one request a line on stdin, one result a line on stdout.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/blackbox.h"
#include "base/error.h"
#include "base/stack_dump.h"
#include "case/fault.h"
#include "matrix/worker/crash_handler.h"
#include "train/run_case.h"

namespace {

using regather::CaseResult;
using regather::Outcome;

// Results go to the pipe that was stdout; what any library prints goes to stderr and cannot garble them.
int take_stdout() {
  const int pipe = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  REGATHER_CHECK(pipe >= 0 && ::dup2(STDERR_FILENO, STDOUT_FILENO) >= 0, "worker", "no stdout: {}",
                 std::strerror(errno));
  return pipe;
}

// False when nobody reads any more.
bool write_line(int pipe, std::string line) {
  line += '\n';
  for (size_t done = 0; done < line.size();) {
    const ssize_t wrote = ::write(pipe, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return true;
}

regather::train::RunOptions options_of(const nlohmann::json& request) {
  regather::train::RunOptions options;
  if (request.value("launcher", "threads") == "processes") options.launcher = regather::train::Launcher::processes;
  if (request.contains("model") && request["model"].is_string()) options.model = request["model"].get<std::string>();
  options.seed = request.value("seed", uint64_t{1});
  // A rank that waits gives up, and says for whom it waited, before the runner's own limit kills the worker.
  options.deadline = std::chrono::milliseconds(static_cast<int64_t>(request.value("timeout", 60.0) * 500));
  return options;
}

// What another stack needs to run the same case, into a file.
std::string answer_export(regather::train::Runner& runner, const nlohmann::json& request) {
  const regather::Case c = regather::parse_id(request.at("export").get<std::string>());
  const auto file = request.at("to").get<std::string>();
  runner.export_case(c, options_of(request), file, request.value("record", false));
  return nlohmann::json{{"exported", file}}.dump();
}

std::string answer(regather::train::Runner& runner, const nlohmann::json& request) {
  if (request.contains("export")) return answer_export(runner, request);
  const regather::Case c = regather::parse_id(request.at("id").get<std::string>());
  regather::seed_fault(regather::parse_fault(request.value("fault", "")));
  CaseResult result = runner.run(c, options_of(request));
  result.device = request.value("device", "cpu");
  result.attempt = request.value("attempt", 1);
  return regather::to_line(result);
}

}  // namespace

int main(int argc, char** argv) {
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 0);  // the flight recorder is one a process; ranks are threads
  ::signal(SIGPIPE, SIG_IGN);
  regather::install_stack_dump();
  regather::install_crash_handler();
  try {
    if (argc == 3 && std::string_view(argv[1]) == "--blackbox") {
      regather::map_blackbox(argv[2]);
    } else if (argc != 1) {
      throw regather::UsageError("usage: regather-worker [--blackbox FILE], requests on stdin");
    }
    const int pipe = take_stdout();
    regather::train::Runner runner;
    for (std::string line; std::getline(std::cin, line);) {
      if (!write_line(pipe, answer(runner, nlohmann::json::parse(line)))) break;
    }
  } catch (const regather::UsageError& error) {
    std::cerr << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "regather-worker: " << error.what() << '\n';
    return 3;
  }
  // Graphs and engines of libtorch have no order of destruction to rely on.
  std::cerr.flush();
  ::_exit(0);
}
