#include "base/blackbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace regather {
namespace {

static_assert(std::is_standard_layout_v<BlackBox>);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

BlackBox own;
BlackBox* box = &own;

template <size_t N>
void copy(std::array<char, N>& to, const char* from) {
  std::snprintf(to.data(), N, "%s", from);
}

}  // namespace

void map_blackbox(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REGATHER_CHECK(file >= 0, "blackbox", "cannot open '{}': {}", path, std::strerror(errno));
  const bool sized = ::ftruncate(file, sizeof(BlackBox)) == 0;
  void* memory = sized ? ::mmap(nullptr, sizeof(BlackBox), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int error = errno;
  ::close(file);
  REGATHER_CHECK(memory != MAP_FAILED, "blackbox", "cannot map '{}': {}", path, std::strerror(error));
  box = static_cast<BlackBox*>(memory);
}

BlackBox& blackbox() { return *box; }

void trace_case(const std::string& id) {
  copy(box->case_id, id.c_str());
  for (RankTrace& rank : box->ranks) {
    rank.step = -1;
    rank.phase = -1;
    rank.collectives = 0;
    rank.collective.fill(0);
  }
  for (auto& rank : box->recent) {
    for (auto& collective : rank) collective.front() = 0;
  }
  box->writer = 0;
}

void trace_phase(int rank, int step, int phase) {
  if (rank < 0 || rank >= kMaxRanks) return;
  box->ranks[static_cast<size_t>(rank)].step = step;
  box->ranks[static_cast<size_t>(rank)].phase = phase;
}

void trace_end(int rank) {
  if (rank >= 0 && rank < kMaxRanks) box->ranks[static_cast<size_t>(rank)].phase = kEnded;
}

void trace_collective(int rank, const char* name, uint64_t sequence) {
  if (rank < 0 || rank >= kMaxRanks) return;
  RankTrace& trace = box->ranks[static_cast<size_t>(rank)];
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%s #%llu", name, static_cast<unsigned long long>(sequence));
  std::copy(text.begin(), text.end(), trace.collective.begin());
  box->recent[static_cast<size_t>(rank)][sequence % kRecent] = text;
  trace.collectives = sequence;
}

std::string last_collective(int rank) {
  if (rank < 0 || rank >= kMaxRanks) return "";
  const auto& name = box->ranks[static_cast<size_t>(rank)].collective;
  return {name.data(), ::strnlen(name.data(), name.size())};
}

}  // namespace regather
