// What each rank was doing last, in memory that outlives the process: the runner reads it after a crash or hang.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace regather {

constexpr int kMaxRanks = 64;

struct RankTrace {
  std::atomic<int> step;
  std::atomic<int> phase;  // Phase as int, -1 before the first
  std::atomic<uint64_t> collectives;
  std::array<char, 64> collective;  // last collective entered, "all_gather #12"
};

struct BlackBox {
  std::array<char, 256> case_id;
  std::array<RankTrace, kMaxRanks> ranks;
};

// Maps `path` (created, of fixed size) for this process; without a call the box is private memory.
void map_blackbox(const std::string& path);
BlackBox& blackbox();

void trace_case(const std::string& id);  // resets all ranks
void trace_phase(int rank, int step, int phase);
void trace_collective(int rank, const char* name, uint64_t sequence);

}  // namespace regather
