// Where each rank of a case was, as the black box tells after its worker died or hung, and for which the others waited.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/blackbox.h"
#include "case/case.h"
#include "case/result.h"

namespace regather::matrix {

struct SeenRank {
  enum class State { not_begun, runs, ended };

  int number = 0;
  State state = State::not_begun;
  int step = 0;  // of a rank that runs
  Phase phase = Phase::build;
  uint64_t collectives = 0;              // that it has entered
  std::string last;                      // of them, "all_gather #12"
  std::vector<std::string> recent = {};  // the last ones, oldest first

  // "rank 1 in backward of step 0".
  std::string text() const;
};

// Whether the case is the one that the worker had begun last. A worker that dies between two cases dies of neither.
bool had_begun(const Case& c, const BlackBox& box);

// Every rank, in order; none where no rank has begun or the box tells of another case.
std::vector<SeenRank> seen_ranks(const Case& c, const BlackBox& box);

// The rank that the others wait for, and how that shows (empty where it does not).
struct Culprit {
  int rank = 0;
  std::string why;
};

// The rank whose process is `stopped`; else of those that have not ended one that has not begun, or entered the fewest
// collectives, or last another than most. Nothing where neither says anything.
std::optional<Culprit> waited_for(const std::vector<SeenRank>& ranks, const std::vector<int>& stopped);

}  // namespace regather::matrix
