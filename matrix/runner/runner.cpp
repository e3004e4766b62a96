#include "matrix/runner/runner.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "case/support.h"
#include "matrix/death/backtrace.h"
#include "matrix/death/death.h"
#include "matrix/death/investigation.h"
#include "matrix/death/rank_traces.h"
#include "matrix/runner/memory.h"
#include "matrix/runner/signals.h"
#include "matrix/runner/stacks.h"
#include "matrix/runner/worker_process.h"

namespace regather::matrix {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kFarewell = 2;  // seconds in which a worker ends by itself once its input is closed
constexpr int kForgiven = 5;     // kills from outside
constexpr int kBeforeIt = 5;     // deaths before a case that are not laid at its door
constexpr int kStillborn = 3;    // workers that end by themselves before any case has begun

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A case on its way through a worker.
struct Flight {
  size_t index = 0;
  int attempt = 1;
  bool alone = false;                  // in a worker of its own, after a death
  int kills = 0;                       // deaths from outside so far
  int before = 0;                      // deaths of workers that had not begun it
  std::optional<RecordedDeath> death;  // the first that did not come from outside, and what its worker had run before
  std::vector<size_t> predecessors;
  std::optional<Investigation> investigation;
  Clock::time_point begin;
};

struct Slot {
  std::unique_ptr<WorkerProcess> worker;
  std::vector<size_t> ran;  // by this worker, in order
  int64_t oom_kills = 0;    // before it began
  std::optional<Flight> flight;
};

bool ran_out_of_memory(const Slot& slot) { return oom_kills() > slot.oom_kills; }

class Runner {
 public:
  Runner(const std::vector<Case>& cases, Schedule& schedule, const RunnerOptions& options, const OnResult& on_result,
         const OnDeath& on_death)
      : cases_(cases),
        schedule_(schedule),
        options_(options),
        on_result_(on_result),
        on_death_(on_death),
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
      Flight flight;
      flight.index = *index;
      flight.attempt = attempt;
      start(slot, std::move(flight));
      return;
    }
  }

  void start(Slot& slot, Flight flight) {
    slot.flight = std::move(flight);
    send(slot, slot.flight->index);
  }

  // The case that the flight has its worker run.
  static size_t running(const Flight& flight) {
    return flight.investigation ? *flight.investigation->current() : flight.index;
  }

  // Has the slot's worker run a case: the flight's own, or a predecessor of it.
  void send(Slot& slot, size_t index) {
    if (slot.worker && slot.worker->ended()) slot.worker.reset();  // it died idle
    if (!slot.worker) {
      if (program_.empty()) program_ = options_.stack.worker.empty() ? find_worker() : options_.stack.worker;
      slot.oom_kills = oom_kills();
      slot.worker = std::make_unique<WorkerProcess>(program_, options_.stack.environment);
      slot.ran.clear();
    }
    Request request = options_.request;
    request.id = id(cases_[index]);
    request.attempt = slot.flight->attempt;
    slot.flight->begin = Clock::now();
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
    const size_t index = running(*slot.flight);
    std::optional<CaseResult> result;
    try {
      result = result_from_line(line);
      if (!(result->which == cases_[index])) {
        throw UsageError(fmt::format("result line: an answer for '{}'", id(result->which)));
      }
    } catch (const UsageError& e) {
      return lose(slot, Outcome::crash, "reply", e.what());
    }
    answered_ = true;
    slot.ran.push_back(index);
    if (!tells_of_death(*result)) {
      if (slot.flight->investigation) return investigate(slot, Shown::lives);
      return conclude(slot, std::move(*result), line);
    }
    // What is left of that worker is of no use.
    const std::unique_ptr<WorkerProcess> worker = std::move(slot.worker);
    die(slot, describe_told_death(std::move(*result), worker->error_tail(), worker->box()), worker->error_tail());
  }

  // The worker is of no more use: its case runs again, or is recorded.
  void lose(Slot& slot, Outcome outcome, std::string type, std::string text) {
    std::vector<int> stopped;
    if (outcome == Outcome::hang && !options_.stack.python()) stopped = see_stacks(*slot.worker);
    const std::unique_ptr<WorkerProcess> worker = std::move(slot.worker);
    const int status = worker->kill_and_reap();
    worker->read_output();
    if (type.empty()) type = describe_status(status);
    if (type == "exit 2") throw UsageError(worker->error_tail());
    // What a worker says that leads ranks of other processes.
    if (type == "exit 5" && options_.request.launcher == "torchrun") throw Incomplete(worker->error_tail());
    if (!slot.flight) return;  // it died idle: nothing is lost
    const bool begun = had_begun(cases_[running(*slot.flight)], worker->box());
    if (slot.flight->investigation && (!begun || !stopped.empty())) return investigate(slot, Shown::nothing);
    if (!answered_ && outcome == Outcome::crash && !type.starts_with("signal 9") && before_first_case(worker->box()) &&
        ++stillborn_ >= kStillborn) {
      throw Error("worker", fmt::format("'{}' ends before it begins any case: {}: {}{}", program_, type, text,
                                        worker->error_tail()));
    }
    if (!begun && slot.flight->before < kBeforeIt) {
      Flight flight = std::move(*slot.flight);
      flight.alone = true;
      ++flight.before;
      return start(slot, std::move(flight));
    }
    RecordedDeath death = describe_death(cases_[running(*slot.flight)],
                                         {.outcome = outcome,
                                          .type = std::move(type),
                                          .text = std::move(text),
                                          .error_tail = worker->error_tail(),
                                          .stopped = std::move(stopped)},
                                         worker->box());
    death.result.milliseconds = seconds_since(slot.flight->begin) * 1e3;
    mark(death.result, slot.flight->attempt);
    die(slot, std::move(death), worker->error_tail());
  }

  // What the flight had its worker run has died.
  void die(Slot& slot, RecordedDeath death, const std::string& output) {
    if (ran_out_of_memory(slot)) blame_memory(death.result);
    const bool outside = from_outside(death.result, output);
    if (slot.flight->investigation) return investigate(slot, outside ? Shown::nothing : Shown::dies);
    Flight flight = std::move(*slot.flight);
    slot.flight.reset();
    const bool forgiven = outside && flight.kills < kForgiven;
    report(death, output,
           forgiven       ? "killed from outside: runs again"
           : flight.death ? "alone too: recorded"
                          : "runs again alone");
    if (flight.death && !forgiven) return deliver(flight.index, death.result, death.line());
    if (forgiven) {
      ++flight.kills;
    } else {
      flight.death = std::move(death);
      flight.predecessors = std::move(slot.ran);
      std::erase(flight.predecessors, flight.index);
    }
    flight.alone = true;
    start(slot, std::move(flight));
  }

  // The case has an answer that is no death. Where it died before, it may be others' doing.
  void conclude(Slot& slot, CaseResult result, const std::string& line) {
    Flight flight = std::move(*slot.flight);
    slot.flight.reset();
    if (flight.alone) slot.worker.reset();
    if (!flight.death || flight.predecessors.empty() || options_.stack.python()) {
      if (flight.death) report(*flight.death, "", "did not happen again alone");
      return deliver(flight.index, result, line);
    }
    const size_t index = flight.index;
    RecordedDeath death = std::move(*flight.death);
    flight.investigation.emplace(index, std::move(flight.predecessors), std::move(death), std::move(result), line);
    slot.flight = std::move(flight);
    send(slot, *slot.flight->investigation->current());
  }

  // What the worker did with that which the investigation had it run; nothing is shown where it was killed from
  // outside.
  enum class Shown { lives, dies, nothing };

  void investigate(Slot& slot, Shown shown) {
    Investigation& investigation = *slot.flight->investigation;
    if (shown == Shown::lives) {
      investigation.answered();
    } else if (shown == Shown::dies) {
      investigation.died();
    } else if (++slot.flight->kills <= kForgiven) {
      investigation.disturbed();
    } else {
      investigation.give_up();
    }
    if (investigation.over() || investigation.begins_run()) slot.worker.reset();
    if (!investigation.over()) return send(slot, *investigation.current());
    const Flight flight = std::move(*slot.flight);
    slot.flight.reset();
    if (flight.investigation->reproduced()) {
      const RecordedDeath found = flight.investigation->finding(cases_);
      report(found, "", "happens again after those cases");
      return deliver(flight.index, found.result, found.line());
    }
    report(flight.investigation->death(), "", "did not happen again, alone or after the same cases");
    deliver(flight.index, flight.investigation->alone(), flight.investigation->line());
  }

  void report(const RecordedDeath& death, const std::string& output, std::string conclusion) {
    on_death_({.death = death, .output = readable_backtrace(output), .conclusion = std::move(conclusion)});
  }

  void deliver(size_t index, const CaseResult& result, const std::string& line) {
    stopped_ = !on_result_(index, result, line);
  }

  void mark(CaseResult& result, int attempt) const {
    result.attempt = attempt;
    result.device = options_.request.device;
    result.stack = options_.stack.name;
  }

  // A result that no worker wrote.
  void finish(size_t index, int attempt, CaseResult result) {
    mark(result, attempt);
    deliver(index, result, to_line(result));
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
  const OnDeath& on_death_;
  std::vector<Slot> slots_;
  std::string program_;
  bool answered_ = false;
  int stillborn_ = 0;
  bool stopped_ = false;
};

}  // namespace

RunEnd run_cases(const std::vector<Case>& cases, Schedule& schedule, const RunnerOptions& options,
                 const OnResult& on_result, const OnDeath& on_death) {
  return Runner(cases, schedule, options, on_result, on_death).run();
}

}  // namespace regather::matrix
