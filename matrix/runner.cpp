#include "matrix/runner.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "case/support.h"
#include "matrix/death.h"
#include "matrix/signals.h"
#include "matrix/worker_process.h"

namespace regather::matrix {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kFarewell = 2;  // seconds in which a worker ends by itself once its input is closed

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A case on its way through a worker.
struct Flight {
  size_t index = 0;
  int attempt = 1;
  bool alone = false;  // the second run, in a worker of its own
  Clock::time_point begin;
};

struct Slot {
  std::unique_ptr<WorkerProcess> worker;
  std::optional<Flight> flight;
};

class Runner {
 public:
  Runner(const std::vector<Case>& cases, Schedule& schedule, const RunnerOptions& options, const OnResult& on_result)
      : cases_(cases),
        schedule_(schedule),
        options_(options),
        on_result_(on_result),
        slots_(static_cast<size_t>(std::max(1, options.jobs))) {}

  RunEnd run() {
    while (!stopped_) {
      for (Slot& slot : slots_) {
        if (!slot.flight && !stopped_) hand_out(slot);
      }
      if (stopped_ || std::ranges::none_of(slots_, [](const Slot& s) { return s.flight.has_value(); })) break;
      wait();
      if (SignalScope::interrupted()) return RunEnd::interrupted;
      for (Slot& slot : slots_) attend(slot);
    }
    if (!stopped_) say_farewell();
    return stopped_ ? RunEnd::stopped : RunEnd::done;
  }

 private:
  // Gives the slot's worker the next case that needs one; cases that nobody supports are answered on the spot.
  void hand_out(Slot& slot) {
    while (!stopped_) {
      const std::optional<size_t> index = schedule_.next();
      if (!index) return;
      const int attempt = schedule_.history(*index).starts + 1;
      const Case& c = cases_[*index];
      // A Python environment's worker knows itself what its packages lack.
      if (const auto why = options_.stack.python() ? std::nullopt : unsupported(c)) {
        CaseResult result;
        result.which = c;
        result.outcome = Outcome::unsupported;
        result.reason = *why;
        finish(*index, attempt, std::move(result));
        continue;
      }
      start(slot, {.index = *index, .attempt = attempt, .alone = false, .begin = {}});
      return;
    }
  }

  void start(Slot& slot, Flight flight) {
    if (slot.worker && slot.worker->ended()) slot.worker.reset();  // it died idle
    if (!slot.worker) {
      if (program_.empty()) program_ = options_.stack.worker.empty() ? find_worker() : options_.stack.worker;
      slot.worker = std::make_unique<WorkerProcess>(program_, options_.stack.environment);
    }
    Request request = options_.request;
    request.id = id(cases_[flight.index]);
    request.attempt = flight.attempt;
    flight.begin = Clock::now();
    slot.flight = flight;
    slot.worker->send(request);
  }

  void wait() const {
    std::vector<pollfd> files;
    double seconds = 3600;
    for (const Slot& slot : slots_) {
      if (!slot.worker) continue;
      for (const int file : {slot.worker->output(), slot.worker->errors()}) {
        if (file >= 0) files.push_back({file, POLLIN, 0});
      }
      if (slot.flight) seconds = std::min(seconds, options_.request.timeout - seconds_since(slot.flight->begin));
      if (slot.worker->ended()) seconds = 0;
    }
    SignalScope::wait(files, seconds);
  }

  // Takes in what the slot's worker has said, and whether it has died or is overdue.
  void attend(Slot& slot) {
    if (!slot.worker || stopped_) return;
    const bool ended = slot.worker->ended();  // before reading: all that it wrote can then be read
    slot.worker->read_output();
    if (const auto line = slot.worker->next_line()) return answer(slot, *line);
    if (ended) return lose(slot, Outcome::crash, "", "");
    if (slot.flight && seconds_since(slot.flight->begin) >= options_.request.timeout) {
      lose(slot, Outcome::hang, "timeout", fmt::format("no answer within {:g} s", options_.request.timeout));
    }
  }

  void answer(Slot& slot, const std::string& line) {
    if (!slot.flight) return lose(slot, Outcome::crash, "reply", "");
    const Flight flight = *slot.flight;
    std::optional<CaseResult> result;
    try {
      result = result_from_line(line);
      if (!(result->which == cases_[flight.index])) {
        throw UsageError(fmt::format("result line: an answer for '{}'", id(result->which)));
      }
    } catch (const UsageError& e) {
      return lose(slot, Outcome::crash, "reply", e.what());
    }
    answered_ = true;
    slot.flight.reset();
    if (flight.alone) slot.worker.reset();
    stopped_ = !on_result_(flight.index, *result, line);
  }

  // The worker is of no more use: its case runs again alone, or is recorded.
  void lose(Slot& slot, Outcome outcome, std::string type, std::string text) {
    const std::unique_ptr<WorkerProcess> worker = std::move(slot.worker);
    const int status = worker->kill_and_reap();
    worker->read_output();
    if (type.empty()) type = describe_status(status);
    if (type == "exit 2") throw UsageError(worker->error_tail());
    if (!slot.flight) return;  // it died idle: nothing is lost
    const Flight flight = *slot.flight;
    slot.flight.reset();
    if (!answered_ && outcome == Outcome::crash && before_first_case(worker->box()) && flight.alone) {
      throw Error("worker", fmt::format("'{}' ends before it begins any case: {}: {}{}", program_, type, text,
                                        worker->error_tail()));
    }
    if (!flight.alone) {
      start(slot, {.index = flight.index, .attempt = flight.attempt + 1, .alone = true, .begin = {}});
      return;
    }
    CaseResult result = describe_death(
        cases_[flight.index],
        {.outcome = outcome, .type = std::move(type), .text = std::move(text), .error_tail = worker->error_tail()},
        worker->box());
    result.milliseconds = seconds_since(flight.begin) * 1e3;
    finish(flight.index, flight.attempt, std::move(result));
  }

  // A result that no worker wrote.
  void finish(size_t index, int attempt, CaseResult result) {
    result.attempt = attempt;
    result.device = options_.request.device;
    result.stack = options_.stack.name;
    stopped_ = !on_result_(index, result, to_line(result));
  }

  void say_farewell() {
    for (Slot& slot : slots_) {
      if (slot.worker) slot.worker->close_input();
    }
    const Clock::time_point begin = Clock::now();
    const auto running = [](const Slot& s) { return s.worker && !s.worker->ended(); };
    while (std::ranges::any_of(slots_, running) && seconds_since(begin) < kFarewell && !SignalScope::interrupted()) {
      std::vector<pollfd> files;
      SignalScope::wait(files, kFarewell - seconds_since(begin));
      for (Slot& slot : slots_) {
        if (slot.worker) slot.worker->read_output();
      }
    }
  }

  const std::vector<Case>& cases_;
  Schedule& schedule_;
  const RunnerOptions& options_;
  const OnResult& on_result_;
  std::vector<Slot> slots_;
  std::string program_;
  bool answered_ = false;
  bool stopped_ = false;
};

}  // namespace

RunEnd run_cases(const std::vector<Case>& cases, Schedule& schedule, const RunnerOptions& options,
                 const OnResult& on_result) {
  return Runner(cases, schedule, options, on_result).run();
}

}  // namespace regather::matrix
