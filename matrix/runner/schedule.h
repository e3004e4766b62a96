// Which case runs next, which attempt of it decides, and when a case is settled. No clock, no processes: replaying the
// lines of an earlier run leads to the same state.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "case/result.h"
#include "matrix/results/verdict.h"

namespace regather::matrix {

struct SchedulePolicy {
  int retries = 0;  // a red attempt is repeated at most so often
  int repeat = 1;   // rounds of every case, each with its own retries
  // Which attempts are red: tried again, and deciding.
  std::function<bool(const CaseResult&)> red = [](const CaseResult& result) { return matrix::red(result); };
};

// What is known of one case.
struct History {
  std::vector<Outcome> attempts;
  std::optional<CaseResult> deciding;  // the first round that ended red, else the latest round
  std::string line;                    // the deciding attempt's line
  int starts = 0;                      // the highest attempt number seen
  int rounds = 0;
  int tries = 0;  // of the round in progress
};

class Schedule {
 public:
  Schedule(size_t cases, SchedulePolicy policy) : policy_(std::move(policy)), histories_(cases) {}

  // Puts every case that is not settled into the queue, in this order.
  void enqueue(const std::vector<size_t>& order);

  std::optional<size_t> next();
  // Takes in an attempt; queues the case again when it is not settled by it. Returns whether a round of it ended red.
  bool record(size_t index, const CaseResult& result, std::string line);
  // Takes in a line of an earlier run, before enqueue().
  void replay(size_t index, const CaseResult& result, std::string line);

  bool settled(size_t index) const { return histories_[index].rounds >= policy_.repeat; }
  const History& history(size_t index) const { return histories_[index]; }
  size_t waiting() const { return queue_.size(); }
  void drop_waiting() { queue_.clear(); }

 private:
  SchedulePolicy policy_;
  std::vector<History> histories_;
  std::deque<size_t> queue_;
};

}  // namespace regather::matrix
