// What rank 0 and the other ranks do around a run among processes that a launcher has started.
#pragma once

#include <memory>

#include "matrix/results/verdict.h"
#include "matrix/runner/ranks.h"
#include "matrix/runner/worker_process.h"

namespace regather::matrix {

// Supervises this rank's worker, which follows rank 0's: a worker that dies, or is stuck in a
// case that the others have given up, is started again with what it died of.
// Returns the exit code of rank 0's run; incomplete when rank 0 is gone.
Exit follow(const Ranks& ranks);

// On rank 0: serves the store, unless a launcher's agent does, and tells the others the exit code in the end. Without
// end() they learn that rank 0 has gone.
class Lead {
 public:
  // Waits for the other ranks. Throws Error where the port is taken, Incomplete where a rank does not come.
  explicit Lead(const Ranks& ranks);
  ~Lead();
  void end(Exit exit);

 private:
  void serve();
  void gather() const;

  Ranks ranks_;
  std::unique_ptr<WorkerProcess> server_;
};

}  // namespace regather::matrix
