#include "matrix/runner/ranks.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "matrix/plan/plan.h"

namespace regather::matrix {
namespace {

// Ports that a job derives from its number.
constexpr int kFirstPort = 20000;
constexpr int kPorts = 10000;

std::string text_of(const Variable& variable, const char* name) {
  const char* value = variable(name);
  return value == nullptr ? "" : value;
}

int number(const Variable& variable, const char* name, int from, int to) {
  const std::string text = text_of(variable, name);
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size() || value < from || value > to) {
    throw UsageError(
        fmt::format("{}='{}': expected a number from {} to {}, as the launcher sets it", name, text, from, to));
  }
  return value;
}

constexpr int kMostProcesses = 65536;

// Rank and size by two variables.
Ranks read_ranks(const Variable& variable, const char* rank, const char* size) {
  Ranks ranks;
  ranks.size = number(variable, size, 1, kMostProcesses);
  ranks.rank = number(variable, rank, 0, ranks.size - 1);
  return ranks;
}

void require(const std::string& value, const char* name, const char* launcher) {
  if (value.empty()) {
    throw UsageError(
        fmt::format("{} is not set: {} does not say where rank 0 is; set it on every rank", name, launcher));
  }
}

uint16_t derived_port(const std::string& job) {
  return static_cast<uint16_t>(kFirstPort + std::stoull(stable_hash(job), nullptr, 16) % kPorts);
}

// MASTER_ADDR and MASTER_PORT where they are set, else the launcher's own.
void place(Ranks& ranks, const Variable& variable, const std::string& host, const std::string& job) {
  ranks.host = text_of(variable, "MASTER_ADDR");
  if (ranks.host.empty()) ranks.host = host;
  ranks.port = text_of(variable, "MASTER_PORT").empty() && !job.empty()
                   ? derived_port(job)
                   : static_cast<uint16_t>(number(variable, "MASTER_PORT", 1, 65535));
  ranks.prefix = "regather/" + job;
}

Ranks of_torchrun(const Variable& variable) {
  Ranks ranks = read_ranks(variable, "RANK", "WORLD_SIZE");
  require(text_of(variable, "MASTER_ADDR"), "MASTER_ADDR", "RANK alone");
  place(ranks, variable, "", "");
  ranks.served = text_of(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  // A restart must not meet what the start before has left in the agent's store.
  ranks.prefix = fmt::format("regather/{}/{}", text_of(variable, "TORCHELASTIC_RUN_ID"),
                             text_of(variable, "TORCHELASTIC_RESTART_COUNT"));
  return ranks;
}

Ranks of_slurm(const Variable& variable) {
  Ranks ranks = read_ranks(variable, "SLURM_PROCID", "SLURM_NTASKS");
  std::string host = text_of(variable, "SLURM_LAUNCH_NODE_IPADDR");
  if (host.empty()) host = first_host(text_of(variable, "SLURM_STEP_NODELIST"));
  if (host.empty()) host = first_host(text_of(variable, "SLURM_JOB_NODELIST"));
  if (text_of(variable, "MASTER_ADDR").empty()) require(host, "MASTER_ADDR", "Slurm");
  place(ranks, variable, host, text_of(variable, "SLURM_JOB_ID") + "." + text_of(variable, "SLURM_STEP_ID"));
  return ranks;
}

Ranks of_open_mpi(const Variable& variable) {
  Ranks ranks = read_ranks(variable, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  const bool one_host = text_of(variable, "OMPI_COMM_WORLD_LOCAL_SIZE") == text_of(variable, "OMPI_COMM_WORLD_SIZE");
  if (!one_host) require(text_of(variable, "MASTER_ADDR"), "MASTER_ADDR", "Open MPI");
  std::string job = text_of(variable, "PMIX_NAMESPACE");
  if (job.empty()) job = text_of(variable, "OMPI_MCA_ess_base_jobid");
  place(ranks, variable, "127.0.0.1", job);
  return ranks;
}

}  // namespace

std::optional<Ranks> ranks_of_launcher(const Variable& variable) {
  const auto set = [&](const char* name) { return !text_of(variable, name).empty(); };
  std::optional<Ranks> ranks;
  if (set("RANK") || set("WORLD_SIZE")) {
    ranks = of_torchrun(variable);
  } else if (set("OMPI_COMM_WORLD_RANK")) {  // before Slurm's: mpirun in an allocation sets both
    ranks = of_open_mpi(variable);
  } else if (set("SLURM_PROCID") && set("SLURM_STEP_ID")) {
    ranks = of_slurm(variable);
  }
  if (ranks && ranks->size == 1) ranks.reset();
  return ranks;
}

std::string first_host(const std::string& list) {
  const size_t end = list.find_first_of("[,");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return host;
  return host + list.substr(end + 1, list.find_first_of("-,]", end + 1) - end - 1);
}

std::vector<std::string> worker_variables(const Ranks& ranks, const std::string& role) {
  return {"REGATHER_ROLE=" + role,
          fmt::format("REGATHER_RANK={}", ranks.rank),
          fmt::format("REGATHER_WORLD_SIZE={}", ranks.size),
          "REGATHER_STORE_HOST=" + ranks.host,
          fmt::format("REGATHER_STORE_PORT={}", ranks.port),
          "REGATHER_STORE_PREFIX=" + ranks.prefix};
}

}  // namespace regather::matrix
