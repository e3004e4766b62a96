#include "matrix/death/rank_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace regather::matrix {
namespace {

template <size_t N>
std::string text_of(const std::array<char, N>& characters) {
  return {characters.begin(), std::ranges::find(characters, '\0')};
}

SeenRank::State state_of(int phase) {
  if (phase == kEnded) return SeenRank::State::ended;
  return phase < 0 || phase > static_cast<int>(Phase::invariant) ? SeenRank::State::not_begun : SeenRank::State::runs;
}

std::vector<std::string> recent_of(const BlackBox& box, size_t rank, uint64_t collectives) {
  std::vector<std::string> list;
  for (uint64_t n = collectives < kRecent ? 1 : collectives - kRecent + 1; n <= collectives; ++n) {
    if (std::string name = text_of(box.recent[rank][n % kRecent]); !name.empty()) list.push_back(std::move(name));
  }
  return list;
}

}  // namespace

std::string SeenRank::text() const {
  if (state == State::not_begun) return fmt::format("rank {} has not begun", number);
  if (state == State::ended) return fmt::format("rank {} has ended", number);
  return fmt::format("rank {} in {} of step {}", number, name(phase), step);
}

bool had_begun(const Case& c, const BlackBox& box) {
  const std::string traced = text_of(box.case_id);  // cut short where the id is long
  return !traced.empty() && id(c).starts_with(traced);
}

std::vector<SeenRank> seen_ranks(const Case& c, const BlackBox& box) {
  std::vector<SeenRank> ranks;
  if (!had_begun(c, box)) return ranks;
  for (int number = 0; number < std::min(c.world, kMaxRanks); ++number) {
    const RankTrace& trace = box.ranks[static_cast<size_t>(number)];
    const int phase = trace.phase.load();
    SeenRank rank{.number = number,
                  .state = state_of(phase),
                  .step = std::max(0, trace.step.load()),
                  .collectives = trace.collectives.load(),
                  .last = text_of(trace.collective)};
    if (rank.state == SeenRank::State::runs) rank.phase = static_cast<Phase>(phase);
    rank.recent = recent_of(box, static_cast<size_t>(number), rank.collectives);
    if (rank.recent.empty() && !rank.last.empty()) rank.recent = {rank.last};
    ranks.push_back(std::move(rank));
  }
  const auto begun = [](const SeenRank& rank) { return rank.state != SeenRank::State::not_begun; };
  if (std::ranges::none_of(ranks, begun)) ranks.clear();
  return ranks;
}

std::optional<Culprit> waited_for(const std::vector<SeenRank>& ranks, const std::vector<int>& stopped) {
  if (!stopped.empty()) {
    return Culprit{stopped.front(), fmt::format("the process of rank {} is stopped", stopped.front())};
  }
  std::vector<SeenRank> left;
  std::ranges::copy_if(ranks, std::back_inserter(left),
                       [](const SeenRank& rank) { return rank.state != SeenRank::State::ended; });
  if (left.empty()) return std::nullopt;
  const auto unborn = std::ranges::find(left, SeenRank::State::not_begun, &SeenRank::state);
  if (unborn != left.end()) return Culprit{unborn->number, ""};

  const auto fewest = std::ranges::min_element(left, {}, &SeenRank::collectives);
  const auto most = std::ranges::max_element(ranks, {}, &SeenRank::collectives);
  if (fewest->collectives < most->collectives) {
    return Culprit{fewest->number, fmt::format("rank {} has entered {} collectives, rank {} {}", fewest->number,
                                               fewest->collectives, most->number, most->collectives)};
  }
  const auto alike = [&](const SeenRank& rank) { return std::ranges::count(ranks, rank.last, &SeenRank::last); };
  const auto odd = std::ranges::min_element(left, {}, alike);
  const auto common = std::ranges::max_element(ranks, {}, alike);
  if (alike(*odd) < alike(*common)) {
    return Culprit{odd->number, fmt::format("rank {} has entered {}, others {}", odd->number, odd->last, common->last)};
  }
  return Culprit{left.front().number, ""};
}

}  // namespace regather::matrix
