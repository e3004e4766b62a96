// Which of the cases that a worker ran before brought a case down: the smallest set that does, by delta debugging
// (Zeller and Hildebrandt 2002, ddmin). No clock and no processes.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace regather::matrix {

class Bisection {
 public:
  // `predecessors` in the order in which they ran. After `most_runs` answers the smallest set so far stands.
  Bisection(std::vector<size_t> predecessors, int most_runs);

  // What to run before the case in a fresh worker, in this order; nothing when the search is over.
  const std::optional<std::vector<size_t>>& next() const { return asked_; }
  // Whether the case died after those that next() named.
  void answer(bool died);
  // Ends the search with the smallest set so far.
  void stop() { asked_.reset(); }

  // Whether all predecessors together brought the case down again. Without that there is no set.
  bool reproduced() const { return reproduced_; }
  // The smallest set known.
  const std::vector<size_t>& culprits() const { return smallest_; }

 private:
  void begin_round();
  void ask();

  std::vector<size_t> smallest_;
  std::vector<std::vector<size_t>> candidates_;  // of the round: parts, then what remains without each part
  size_t candidate_ = 0;
  size_t parts_ = 0;
  int runs_left_;
  bool reproduced_ = false;
  std::optional<std::vector<size_t>> asked_;
};

}  // namespace regather::matrix
