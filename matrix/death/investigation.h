// A case died in a worker that had run others, and alone it does not: did those others bring it down?
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "case/result.h"
#include "matrix/death/bisection.h"
#include "matrix/death/death.h"

namespace regather::matrix {

// What a slot goes through after such a death: runs of some predecessors and then the case, each in a fresh worker.
class Investigation {
 public:
  static constexpr int kMostRuns = 64;
  static constexpr double kMostSeconds = 120;

  // `death`: how the case died. `alone`, `line`: its result in a worker of its own.
  Investigation(size_t index, std::vector<size_t> predecessors, RecordedDeath death, CaseResult alone,
                std::string line);

  // What the worker runs now; nothing when the investigation is over. A run begins in a fresh worker.
  std::optional<size_t> current() const;
  bool begins_run() const { return position_ == 0; }
  // The worker has answered, or it has died (or hung) at what current() named, or it was killed from outside: the run
  // shows nothing and begins anew.
  void answered();
  void died();
  void disturbed() { position_ = 0; }
  // Ends with what is known.
  void give_up() { bisection_.stop(); }

  bool over() const { return !bisection_.next(); }
  bool reproduced() const { return bisection_.reproduced(); }
  // Of a death that was reproduced: it, naming the smallest set of predecessors.
  RecordedDeath finding(const std::vector<Case>& cases) const;
  const CaseResult& alone() const { return alone_; }
  const std::string& line() const { return line_; }
  const RecordedDeath& death() const { return death_; }

 private:
  void end_run(bool died);

  size_t index_;
  Bisection bisection_;
  size_t position_ = 0;  // in what the bisection asks for; its size: the case itself
  RecordedDeath death_;
  CaseResult alone_;
  std::string line_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace regather::matrix
