#include "matrix/runner/follow.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "matrix/death/death.h"
#include "matrix/runner/capture.h"
#include "matrix/runner/memory.h"
#include "matrix/runner/runner.h"
#include "matrix/runner/signals.h"
#include "matrix/runner/worker_process.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr double kServing = 60;     // seconds until the store must be there
constexpr double kGathering = 330;  // seconds until every rank must be there: more than the worker's own limit
constexpr double kFarewell = 60;    // for telling the others
constexpr int kStillborn = 3;       // workers that end before any case has begun

// Until the process says something or ends.
void wait_for(WorkerProcess& worker, double seconds) {
  std::vector<pollfd> files;
  for (const int file : {worker.output(), worker.errors()}) {
    if (file >= 0) files.push_back({file, POLLIN, 0});
  }
  SignalScope::wait(files, worker.ended() ? 0 : seconds);
}

// One worker's life: the code that rank 0 has ended with, or nothing when it died; `running` is the case that it ran.
std::optional<int> live(WorkerProcess& worker, std::string& running) {
  while (!SignalScope::interrupted()) {
    const bool ended = worker.ended();
    worker.read_output();
    while (const auto line = worker.next_line()) {
      const Json said = Json::parse(*line, nullptr, false);
      if (said.is_object() && said.contains("end")) return said["end"].get<int>();
      if (said.is_object() && said.contains("case")) running = said["case"].get<std::string>();
    }
    if (ended) return std::nullopt;
    wait_for(worker, 3600);
  }
  return std::nullopt;
}

// The result of the case in which this rank's worker died, as that worker would have posted it.
std::string result_of_death(const std::string& running, const WorkerProcess& worker, const std::string& how,
                            bool out_of_memory) {
  if (running.empty()) return "";
  CaseResult death =
      describe_death(parse_id(running),
                     {.outcome = Outcome::crash, .type = how, .text = "", .error_tail = worker.error_tail()},
                     worker.box())
          .result;
  if (out_of_memory) blame_memory(death);
  return to_line(death);
}

}  // namespace

Exit follow(const Ranks& ranks) {
  const SignalScope signals;
  const std::string program = find_worker();
  std::string died;
  for (int stillborn = 0; stillborn < kStillborn;) {
    std::vector<std::string> variables = worker_variables(ranks, "follow");
    variables.push_back("REGATHER_DIED=" + died);
    const int64_t kills = oom_kills();
    WorkerProcess worker(program, variables);
    std::string running;
    const std::optional<int> end = live(worker, running);
    if (SignalScope::interrupted()) return Exit::interrupted;
    const std::string how = describe_status(worker.kill_and_reap());
    worker.read_output();
    if (end) return static_cast<Exit>(*end);
    if (how == "exit 2") throw UsageError(worker.error_tail());
    if (how == "exit 3") {
      fmt::print(stderr, "regather: rank {}: {}", ranks.rank, worker.error_tail());
      return Exit::incomplete;
    }
    stillborn = running.empty() ? stillborn + 1 : 0;
    died = result_of_death(running, worker, how, oom_kills() > kills);
  }
  throw Error("ranks", fmt::format("'{}' ends before it begins any case", program), __FILE__, __LINE__);
}

Lead::Lead(const Ranks& ranks) : ranks_(ranks) {
  if (!ranks.served) serve();
  gather();
}

void Lead::serve() {
  const SignalScope signals;
  server_ = std::make_unique<WorkerProcess>(find_worker(), worker_variables(ranks_, "serve"));
  const Clock::time_point begin = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  while (spent() < kServing && !SignalScope::interrupted()) {
    const bool ended = server_->ended();
    server_->read_output();
    if (server_->next_line()) return;
    if (ended) break;
    wait_for(*server_, kServing - spent());
  }
  throw Error("ranks",
              fmt::format("cannot serve the ranks' store on port {}: {}; choose another MASTER_PORT", ranks_.port,
                          server_->error_tail()),
              __FILE__, __LINE__);
}

void Lead::gather() const {
  const Captured gathered = capture({find_worker()}, worker_variables(ranks_, "gather"), kGathering);
  if (gathered.status != 0) throw Incomplete(gathered.errors);
}

Lead::~Lead() = default;

void Lead::end(Exit exit) {
  std::vector<std::string> variables = worker_variables(ranks_, "end");
  variables.push_back(fmt::format("REGATHER_END={}", static_cast<int>(exit)));
  const Captured told = capture({find_worker()}, variables, kFarewell);
  if (told.status != 0) fmt::print(stderr, "regather: cannot tell the other ranks that it is over: {}\n", told.errors);
}

}  // namespace regather::matrix
