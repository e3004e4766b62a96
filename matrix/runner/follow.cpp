#include "matrix/runner/follow.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/tell.h"
#include "matrix/death/death.h"
#include "matrix/runner/capture.h"
#include "matrix/runner/memory.h"
#include "matrix/runner/runner.h"
#include "matrix/runner/signals.h"
#include "matrix/runner/stacks.h"
#include "matrix/runner/worker_process.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr double kServing = 60;     // seconds until the store must be there
constexpr double kGathering = 330;  // seconds until every rank must be there: more than the worker's own limit
constexpr double kFarewell = 60;    // for telling the others
constexpr double kSilence = 30;     // without a beat of a worker that has reached the store
constexpr int kStillborn = 3;       // workers that end before any case has begun

// Until the process says something or ends.
void wait_for(WorkerProcess& worker, double seconds) {
  std::vector<pollfd> files;
  for (const int file : {worker.output(), worker.errors()}) {
    if (file >= 0) files.push_back({file, POLLIN, 0});
  }
  SignalScope::wait(files, worker.ended() ? 0 : seconds);
}

// What a worker has said.
struct Said {
  std::string id;  // of the case that it began last; empty: none yet
  int64_t number = 0;
  std::optional<Clock::time_point> until;  // which that case may take, while it runs
  std::optional<Clock::time_point> quiet;  // until when it must have reached the store again
  std::optional<int> end;                  // what rank 0 has ended with

  void learn(const std::string& line) {
    const Json said = Json::parse(line, nullptr, false);
    if (!said.is_object()) return;
    if (said.contains("beat")) {
      quiet = after(kSilence);
    } else if (said.contains("end")) {
      end = said["end"].get<int>();
    } else if (said.contains("case")) {
      id = said["case"].get<std::string>();
      number = said["number"].get<int64_t>();
      until = after(said["seconds"].get<double>());
    } else {
      until.reset();
    }
  }

  static Clock::time_point after(double seconds) {
    return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  }
};

double seconds_to(const std::optional<Clock::time_point>& end) {
  return end ? std::max(0.0, std::chrono::duration<double>(*end - Clock::now()).count()) : 3600;
}

// Takes in every whole line that has come.
void listen(WorkerProcess& worker, Said& said) {
  for (;;) {
    const std::optional<std::string> line = worker.next_line();
    if (!line) return;
    said.learn(*line);
  }
}

enum class Life { over, overdue, silent, interrupted };

// One worker's life, until its end, or until its case is overdue, or the store has been out of reach for too long.
Life live(WorkerProcess& worker, Said& said) {
  while (!SignalScope::interrupted()) {
    const bool ended = worker.ended();
    worker.read_output();
    listen(worker, said);
    if (ended || said.end) return Life::over;
    if (seconds_to(said.quiet) == 0) return Life::silent;
    if (seconds_to(said.until) == 0) return Life::overdue;
    wait_for(worker, std::min(seconds_to(said.quiet), seconds_to(said.until)));
  }
  return Life::interrupted;
}

// The result of the case in which this rank's worker died, as that worker would have posted it.
std::string result_of_death(const Said& said, const WorkerProcess& worker, Death death, bool out_of_memory) {
  if (said.id.empty()) return "";
  death.error_tail = worker.error_tail();
  CaseResult result = describe_death(parse_id(said.id), death, worker.box()).result;
  if (out_of_memory) blame_memory(result);
  return to_line(result);
}

}  // namespace

Exit follow(const Ranks& ranks) {
  const SignalScope signals;
  const std::string program = find_worker();
  std::string died;
  Said said;
  for (int stillborn = 0; stillborn < kStillborn;) {
    std::vector<std::string> variables = worker_variables(ranks, "follow");
    variables.push_back("REGATHER_DIED=" + died);
    variables.push_back(fmt::format("REGATHER_DIED_IN={}", said.number));
    const int64_t kills = oom_kills();
    WorkerProcess worker(program, variables);
    said = {};
    const Life life = live(worker, said);
    if (life == Life::interrupted) return Exit::interrupted;
    Death death;
    if (life == Life::overdue) {
      death = {
          .outcome = Outcome::hang, .type = "timeout", .text = "", .error_tail = "", .stopped = see_stacks(worker)};
    }
    const std::string how = describe_status(worker.kill_and_reap());
    worker.read_output();
    if (said.end) return static_cast<Exit>(*said.end);
    if (life == Life::silent) {
      tell("regather: rank {}: rank 0's store at {}:{} is out of reach for {:g} s\n", ranks.rank, ranks.host,
           ranks.port, kSilence);
      return Exit::incomplete;
    }
    if (how == "exit 2") throw UsageError(worker.error_tail());
    if (how == "exit 3") {
      tell("regather: rank {}: {}", ranks.rank, worker.error_tail());
      return Exit::incomplete;
    }
    if (death.type.empty()) death.type = how;
    death.only = ranks.rank;
    stillborn = said.id.empty() ? stillborn + 1 : 0;
    died = result_of_death(said, worker, std::move(death), oom_kills() > kills);
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
  if (told.status != 0) tell("regather: cannot tell the other ranks that it is over: {}\n", told.errors);
}

}  // namespace regather::matrix
