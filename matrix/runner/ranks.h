// Which rank this process is among those that a launcher has started: torchrun, srun or mpirun.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace regather::matrix {

struct Ranks {
  int rank = 0;
  int size = 1;
  std::string host;  // of rank 0's store
  uint16_t port = 0;
  std::string prefix;   // of its keys: one a start
  bool served = false;  // torchrun's agent already serves a store there
  bool operator==(const Ranks&) const = default;
};

using Variable = std::function<const char*(const char* name)>;  // getenv

// From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; else from SLURM_PROCID, SLURM_NTASKS, the first host of the step
// and its job's number; else from OMPI_COMM_WORLD_RANK and _SIZE. MASTER_ADDR and MASTER_PORT come before what the
// others derive. Nothing where none of them is set, or where the world is one process. Throws UsageError naming the
// variable that is missing, malformed or out of range.
std::optional<Ranks> ranks_of_launcher(const Variable& variable);

// The first host of Slurm's short form: "node[07-09,12],other3" gives node07.
std::string first_host(const std::string& list);

// What a worker that plays `role` (matrix/worker/joined.h) needs to know, as NAME=VALUE.
std::vector<std::string> worker_variables(const Ranks& ranks, const std::string& role);

}  // namespace regather::matrix
