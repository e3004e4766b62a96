// What each rank was doing last, in memory that outlives the process: the runner reads it after a crash or hang.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace regather {

constexpr int kMaxRanks = 64;

constexpr int kEnded = 1000;  // as a phase: the rank's function has returned

struct RankTrace {
  std::atomic<int> step;
  std::atomic<int> phase;  // Phase as int, -1 before the first, kEnded after the last
  std::atomic<uint64_t> collectives;
  std::array<char, 64> collective;  // last collective entered, "all_gather #12"
};

constexpr size_t kRecent = 8;

// Its first two members are those that workers of other stacks fill (matrix/peers/regather_peers/blackbox.py).
struct BlackBox {
  std::array<char, 256> case_id;
  std::array<RankTrace, kMaxRanks> ranks;
  // The last collectives of each rank, that with sequence number n at n % kRecent.
  std::array<std::array<std::array<char, 48>, kRecent>, kMaxRanks> recent;
  std::atomic<int> writer;  // the process that is writing a stack (base/stack_dump.h), or 0
};

// Maps `path` (created, of fixed size) for this process; without a call the box is private memory.
void map_blackbox(const std::string& path);
BlackBox& blackbox();

void trace_case(const std::string& id);  // resets all ranks
void trace_phase(int rank, int step, int phase);
void trace_end(int rank);
void trace_collective(int rank, const char* name, uint64_t sequence);

// The last that the rank entered, "all_gather #12"; empty before the first.
std::string last_collective(int rank);

}  // namespace regather
