#include "matrix/runner/schedule.h"

#include <algorithm>
#include <utility>

namespace regather::matrix {

void Schedule::enqueue(const std::vector<size_t>& order) {
  for (const size_t index : order) {
    if (!settled(index)) queue_.push_back(index);
  }
}

std::optional<size_t> Schedule::next() {
  if (queue_.empty()) return std::nullopt;
  const size_t index = queue_.front();
  queue_.pop_front();
  return index;
}

bool Schedule::record(size_t index, const CaseResult& result, std::string line) {
  const int rounds = histories_[index].rounds;
  replay(index, result, std::move(line));
  if (!settled(index)) queue_.push_back(index);
  return histories_[index].rounds > rounds && policy_.red(result);
}

void Schedule::replay(size_t index, const CaseResult& result, std::string line) {
  History& history = histories_[index];
  if (settled(index)) return;
  history.attempts.push_back(result.outcome);
  history.starts = std::max(history.starts, result.attempt);
  ++history.tries;
  if (policy_.red(result) && history.tries <= policy_.retries) return;
  // An unsupported case answers the same in every round.
  history.rounds = result.outcome == Outcome::unsupported ? policy_.repeat : history.rounds + 1;
  history.tries = 0;
  if (history.deciding && policy_.red(*history.deciding)) return;
  history.deciding = result;
  history.line = std::move(line);
}

}  // namespace regather::matrix
