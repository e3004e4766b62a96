// What a run says on standard error: progress while it runs, a table and the red cases at its end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "case/result.h"

namespace regather::matrix {

// Outcome counts, a row a backend, a column each for fixes off, in part and on.
std::string print_table(const std::vector<CaseResult>& results);

// "crash in backward of step 0 on rank 1: signal 11 (SIGSEGV): ..."; the outcome alone without a signature.
std::string print_signature(const CaseResult& result);

struct RedCase {
  CaseResult result;
  std::string why;  // what was expected instead, where there is more to say than the outcome
};

// The red cases, each with its signature and the command that runs it again. `options` follow the id there.
std::string print_red(const std::vector<RedCase>& cases, const std::string& options, bool colour);

// One line rewritten in place on a terminal; says nothing elsewhere.
class Progress {
 public:
  Progress(size_t cases, size_t done);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void advance(bool settled, bool red);
  // A line that stays.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  size_t cases_;
  size_t done_;
  size_t ran_ = 0;
  size_t red_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_{};
};

// Whether standard error is a terminal that wants colours (NO_COLOR).
bool colour_wanted();

}  // namespace regather::matrix
