#include "matrix/death/bisection.h"

#include <algorithm>
#include <utility>

namespace regather::matrix {

Bisection::Bisection(std::vector<size_t> predecessors, int most_runs)
    : smallest_(std::move(predecessors)), runs_left_(most_runs) {
  if (!smallest_.empty() && runs_left_ > 0) asked_ = smallest_;
}

void Bisection::answer(bool died) {
  --runs_left_;
  if (!reproduced_) {
    reproduced_ = died;
    parts_ = 2;
    if (!died) return stop();
    return begin_round();
  }
  if (died) {
    // A part alone starts anew with two parts; a set without a part goes on with the parts that are left.
    const bool part = candidate_ < parts_;
    smallest_ = std::move(candidates_[candidate_]);
    parts_ = part ? 2 : std::max<size_t>(2, parts_ - 1);
    return begin_round();
  }
  ++candidate_;
  if (candidate_ == candidates_.size()) {
    if (parts_ >= smallest_.size()) return stop();
    parts_ = std::min(smallest_.size(), 2 * parts_);
    return begin_round();
  }
  ask();
}

void Bisection::begin_round() {
  if (smallest_.size() < 2) return stop();
  parts_ = std::min(parts_, smallest_.size());
  candidates_.clear();
  candidate_ = 0;
  std::vector<std::vector<size_t>> rests;
  for (size_t part = 0; part < parts_; ++part) {
    const auto begin = smallest_.begin() + static_cast<ptrdiff_t>(part * smallest_.size() / parts_);
    const auto end = smallest_.begin() + static_cast<ptrdiff_t>((part + 1) * smallest_.size() / parts_);
    candidates_.emplace_back(begin, end);
    std::vector<size_t> rest(smallest_.begin(), begin);
    rest.insert(rest.end(), end, smallest_.end());
    rests.push_back(std::move(rest));
  }
  // Of two parts each is what remains without the other.
  if (parts_ > 2) candidates_.insert(candidates_.end(), rests.begin(), rests.end());
  ask();
}

void Bisection::ask() {
  if (runs_left_ <= 0) return stop();
  asked_ = candidates_[candidate_];
}

}  // namespace regather::matrix
