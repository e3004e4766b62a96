// out/deaths.jsonl: every death of a worker and what became of it, beside the results: also those that came from
// outside and left no trace in any result. Appended whole; begun anew by a run without --resume.
#pragma once

#include <string>
#include <vector>

#include "matrix/death/death.h"

namespace regather::matrix {

struct DeathReport {
  RecordedDeath death;
  std::string output;      // the end of the worker's standard error, readable
  std::string conclusion;  // "from outside: runs again", "happened again alone", ...
};

// One line: what happened to which case, and what it came to.
std::string print_death(const DeathReport& report);

class Deaths {
 public:
  // Removes an earlier file unless `keep`; makes one with the first death.
  Deaths(std::string path, bool keep);
  // Throws Error("deaths") when the disk does not take it.
  void append(const DeathReport& report);
  size_t count() const { return count_; }

 private:
  std::string path_;
  size_t count_ = 0;
};

}  // namespace regather::matrix
