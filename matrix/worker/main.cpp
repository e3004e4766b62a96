// regather-worker: runs the cases that it reads, one request a line on stdin, one result a line on stdout.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/blackbox.h"
#include "base/error.h"
#include "base/stack_dump.h"
#include "case/fault.h"
#include "matrix/worker/crash_handler.h"
#include "matrix/worker/joined.h"
#include "matrix/worker/requests.h"
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

// The part that this worker has among those of other ranks, if any.
std::string role() {
  const char* text = std::getenv("REGATHER_ROLE");
  return text == nullptr ? "" : text;
}

// What another stack needs to run the same case, into a file.
std::string answer_export(regather::train::Runner& runner, const nlohmann::json& request) {
  const regather::Case c = regather::parse_id(request.at("export").get<std::string>());
  const auto file = request.at("to").get<std::string>();
  runner.export_case(c, regather::options_of(request), file, request.value("record", false));
  return nlohmann::json{{"exported", file}}.dump();
}

std::string answer(regather::train::Runner& runner, regather::Leader* leader, const nlohmann::json& request) {
  if (request.contains("export")) return answer_export(runner, request);
  const regather::Case c = regather::parse_id(request.at("id").get<std::string>());
  regather::seed_fault(regather::parse_fault(request.value("fault", "")));
  CaseResult result = leader == nullptr ? runner.run(c, regather::options_of(request))
                                        : leader->run(runner, c, regather::options_of(request), request);
  result.device = request.value("device", "cpu");
  result.attempt = request.value("attempt", 1);
  return regather::to_line(result);
}

void answer_requests(int pipe) {
  std::optional<regather::Leader> leader;
  if (!role().empty()) leader.emplace(regather::joined_from_environment());
  regather::train::Runner runner;
  for (std::string line; std::getline(std::cin, line);) {
    if (!regather::write_line(pipe, answer(runner, leader ? &*leader : nullptr, nlohmann::json::parse(line)))) break;
  }
}

void play(const std::string& part, int pipe) {
  const regather::Joined joined = regather::joined_from_environment();
  const auto text = [](const char* name) { return std::string(std::getenv(name) == nullptr ? "" : std::getenv(name)); };
  if (part == "serve") {
    regather::serve(joined, pipe);
  } else if (part == "gather") {
    regather::gather_followers(joined);
  } else if (part == "end") {
    regather::end_followers(joined, std::stoi(text("REGATHER_END")));
  } else if (part == "follow") {
    regather::follow(joined, pipe, {.result = text("REGATHER_DIED"), .in = std::stoll(text("REGATHER_DIED_IN"))});
  } else {
    throw regather::UsageError(fmt::format("REGATHER_ROLE '{}': expected serve, gather, lead, follow or end", part));
  }
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
    if (role().empty() || role() == "lead") {
      answer_requests(pipe);
    } else {
      play(role(), pipe);
    }
  } catch (const regather::UsageError& error) {
    std::cerr << error.what() << '\n';
    return 2;
  } catch (const regather::LostRank& error) {
    std::cerr << error.what() << '\n';
    return 5;
  } catch (const std::exception& error) {
    std::cerr << "regather-worker: " << error.what() << '\n';
    return 3;
  }
  // Graphs and engines of libtorch have no order of destruction to rely on.
  std::cerr.flush();
  ::_exit(0);
}
