#include "matrix/death.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace regather::matrix {
namespace {

constexpr size_t kLongestTail = 2000;

template <size_t N>
std::string text_of(const std::array<char, N>& characters) {
  return {characters.begin(), std::ranges::find(characters, '\0')};
}

struct Rank {
  int number;
  int step;
  int phase;
  uint64_t collectives;
  std::string last;
};

// The ranks of the case that had begun; none when the box tells of another case.
std::vector<Rank> ranks_of(const Case& c, const BlackBox& box) {
  std::vector<Rank> ranks;
  // The box cuts long ids short.
  if (const std::string traced = text_of(box.case_id); traced.empty() || !id(c).starts_with(traced)) return ranks;
  for (int number = 0; number < std::min(c.world, kMaxRanks); ++number) {
    const RankTrace& trace = box.ranks[static_cast<size_t>(number)];
    const int phase = trace.phase.load();
    if (phase < 0 || phase > static_cast<int>(Phase::invariant)) continue;
    ranks.push_back(
        {number, std::max(0, trace.step.load()), phase, trace.collectives.load(), text_of(trace.collective)});
  }
  return ranks;
}

std::optional<int> named_rank(const std::string& errors) {
  constexpr std::string_view kWords = "on rank ";
  const size_t at = errors.find(kWords);
  if (at == std::string::npos) return std::nullopt;
  int rank = -1;
  const char* begin = errors.data() + at + kWords.size();
  std::from_chars(begin, errors.data() + errors.size(), rank);
  return rank;
}

// The last whole lines, with addresses replaced, so that two runs of one crash read the same.
std::string normalised_tail(const std::string& errors) {
  std::string_view tail = errors;
  if (tail.size() > kLongestTail) {
    tail.remove_prefix(tail.size() - kLongestTail);
    tail.remove_prefix(std::min(tail.size(), tail.find('\n') + 1));
  }
  while (!tail.empty() && std::isspace(static_cast<unsigned char>(tail.back())) != 0) tail.remove_suffix(1);
  std::string text;
  for (size_t i = 0; i < tail.size(); ++i) {
    text += tail[i];
    if (!tail.substr(i).starts_with("0x")) continue;
    text += "x?";
    ++i;
    while (i + 1 < tail.size() && std::isxdigit(static_cast<unsigned char>(tail[i + 1])) != 0) ++i;
  }
  return text;
}

}  // namespace

CaseResult describe_death(const Case& c, const Death& death, const BlackBox& box) {
  CaseResult result;
  result.which = c;
  result.outcome = death.outcome;
  Signature signature{.mechanism = {},
                      .phase = Phase::build,
                      .step = 0,
                      .rank = 0,
                      .type = death.type,
                      .text = death.text,
                      .upstream = {}};
  const auto add = [&signature](const std::string& part) {
    if (!signature.text.empty()) signature.text += "; ";
    signature.text += part;
  };
  const std::vector<Rank> ranks = ranks_of(c, box);
  if (!ranks.empty()) {
    auto at = std::ranges::min_element(ranks, {}, &Rank::collectives);
    if (const auto named = named_rank(death.error_tail)) {
      if (const auto found = std::ranges::find(ranks, *named, &Rank::number); found != ranks.end()) at = found;
    }
    signature.rank = at->number;
    signature.step = at->step;
    signature.phase = static_cast<Phase>(at->phase);
  }
  for (const Rank& rank : ranks) {
    add(fmt::format("rank {} in {} of step {}, last collective {}", rank.number, name(static_cast<Phase>(rank.phase)),
                    rank.step, rank.last.empty() ? "none" : rank.last));
  }
  if (const std::string tail = normalised_tail(death.error_tail); !tail.empty()) add("standard error: " + tail);
  result.signature = std::move(signature);
  return result;
}

bool before_first_case(const BlackBox& box) { return box.case_id.front() == '\0'; }

}  // namespace regather::matrix
