// A worker as one rank among others that a launcher has started (matrix/runner/ranks.h): the first leads, the others
// follow.
//
// They meet in a store. "started" counts the cases; "case/N" is the N-th request, or {"end": CODE}; "line/N/R" is rank
// R's own result of it. "here/R" says that rank R has come, and "alive/R" is counted up while its worker lives.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/error.h"
#include "comm/rendezvous.h"
#include "train/run_case.h"

namespace regather {

struct Joined {
  int rank = 0;
  int size = 1;
  comm::Endpoint store;
};

// From REGATHER_RANK, REGATHER_WORLD_SIZE and REGATHER_STORE_HOST, _PORT and _PREFIX, which the runner sets.
Joined joined_from_environment();

// Another rank's process is gone, or has not come: nothing that needs it can run.
struct LostRank : Error {
  explicit LostRank(const std::string& text) : Error("ranks", text) {}
};

class Leader {
 public:
  explicit Leader(const Joined& joined);
  // Runs the case of a request on its ranks; the merged result. Throws LostRank.
  CaseResult run(train::Runner& runner, const Case& c, const train::RunOptions& options, const nlohmann::json& request);

 private:
  // When a rank was heard of last, and its count then.
  struct Sign {
    std::chrono::steady_clock::time_point heard;
    int64_t beats;
  };
  // Waits for another rank's own result. Throws LostRank when the rank has been silent for too long.
  CaseResult result_of(const Case& c, int rank, const std::string& line, double timeout, Sign last);

  comm::Rendezvous rendezvous_;
};

// Waits for every other rank. Throws LostRank naming the first that does not come.
void gather_followers(const Joined& joined);

// What this rank's worker before died of, as a result line (empty: it is the first, or died idle), and in which case.
struct Died {
  std::string result;
  int64_t in = 0;
};

// Runs what the leader asks for until it ends; prints {"case": ID, "number": N, "seconds": S} as each begins, S
// being the case's time limit, {"idle": true} once it is answered, {"beat": true} as long as it
// reaches the store, and {"end": CODE} at the end.
void follow(const Joined& joined, int pipe, const Died& died);

// Tells the followers that it is over.
void end_followers(const Joined& joined, int code);

// Serves the store until standard input ends; prints {"serving": PORT} once it does.
void serve(const Joined& joined, int pipe);

}  // namespace regather
