#include "matrix/death.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "matrix/backtrace.h"

namespace regather::matrix {
namespace {

constexpr size_t kLongestTail = 2000;
constexpr std::string_view kFatalSignal = "regather-worker: fatal signal";
constexpr std::string_view kFatal = "regather-worker: fatal signal, stack of rank ";
constexpr std::string_view kFromOutside = "regather-worker: signal from outside";
constexpr const char* kKilled = "signal 9 ";
constexpr std::array kSignalsFromOutside{kKilled, "signal 15 ", "signal 2 ", "signal 1 "};

bool deadly(Outcome outcome) {
  return outcome == Outcome::crash || outcome == Outcome::hang || outcome == Outcome::oom;
}

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
  if (!had_begun(c, box)) return ranks;
  for (int number = 0; number < std::min(c.world, kMaxRanks); ++number) {
    const RankTrace& trace = box.ranks[static_cast<size_t>(number)];
    const int phase = trace.phase.load();
    if (phase < 0 || phase > static_cast<int>(Phase::invariant)) continue;
    ranks.push_back(
        {number, std::max(0, trace.step.load()), phase, trace.collectives.load(), text_of(trace.collective)});
  }
  return ranks;
}

std::optional<int> rank_after(const std::string& text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return std::nullopt;
  int rank = -1;
  std::from_chars(text.data() + at + words.size(), text.data() + text.size(), rank);
  return rank;
}

// The rank that the worker itself, or what watches its processes, says it is.
std::optional<int> named_rank(const Death& death) {
  if (!death.stopped.empty()) return death.stopped.front();
  if (const auto rank = rank_after(death.error_tail, kFatal)) return rank;
  if (death.outcome == Outcome::hang) return std::nullopt;  // every rank's stack is there
  return rank_after(death.error_tail, "on rank ");
}

// The rank that the others wait for.
std::vector<Rank>::const_iterator behind(const std::vector<Rank>& ranks) {
  const auto fewest = std::ranges::min_element(ranks, {}, &Rank::collectives);
  if (std::ranges::any_of(ranks, [&](const Rank& r) { return r.collectives != fewest->collectives; })) return fewest;
  // All entered as many: the one that entered another than most did.
  const auto alike = [&](const Rank& rank) { return std::ranges::count(ranks, rank.last, &Rank::last); };
  return std::ranges::min_element(ranks, {}, alike);
}

// Oldest first.
std::string last_collectives(const Rank& rank, const BlackBox& box) {
  std::string list;
  for (uint64_t n = rank.collectives < kRecent ? 1 : rank.collectives - kRecent + 1; n <= rank.collectives; ++n) {
    const std::string name = text_of(box.recent[static_cast<size_t>(rank.number)][n % kRecent]);
    if (!name.empty()) list += (list.empty() ? "" : ", ") + name;
  }
  return list.empty() ? rank.last : list;
}

std::string where(const Rank& rank, const std::string& collectives, const char* which) {
  return fmt::format("rank {} in {} of step {}, last {} {}", rank.number, name(static_cast<Phase>(rank.phase)),
                     rank.step, which, collectives.empty() ? "none" : collectives);
}

// The end of what the worker wrote: from its fatal signal on, where it says so.
std::string tail_of(const std::string& errors) {
  const size_t fatal = errors.find(kFatalSignal);
  const std::string readable = readable_backtrace(fatal == std::string::npos ? std::string_view(errors)
                                                                             : std::string_view(errors).substr(fatal));
  if (fatal == std::string::npos) return std::string(last_lines(readable, kLongestTail));
  return readable.substr(0, std::min(readable.size(), readable.rfind('\n', kLongestTail)));
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
    auto at = behind(ranks);
    if (const auto named = named_rank(death)) {
      if (const auto found = std::ranges::find(ranks, *named, &Rank::number); found != ranks.end()) at = found;
    }
    signature.rank = at->number;
    signature.step = at->step;
    signature.phase = static_cast<Phase>(at->phase);
    if (death.outcome != Outcome::hang) add(where(*at, at->last, "collective"));
  }
  if (death.outcome == Outcome::hang) {
    for (const Rank& rank : ranks) add(where(rank, last_collectives(rank, box), "collectives"));
    for (const int rank : death.stopped) add(fmt::format("the process of rank {} is stopped", rank));
  }
  if (const std::string tail = tail_of(death.error_tail); !tail.empty()) add("standard error: " + tail);
  result.signature = std::move(signature);
  return result;
}

void add_stack(CaseResult& result, const std::string& error_tail) {
  if (!result.signature || error_tail.find(kFatalSignal) == std::string::npos) return;
  result.signature->text += "; standard error: " + tail_of(error_tail);
}

bool tells_of_death(const CaseResult& result) {
  return deadly(result.outcome) ||
         std::ranges::any_of(result.also, [](const Departure& d) { return deadly(d.outcome); });
}

void put_death_first(CaseResult& result) {
  if (!result.signature) result.signature.emplace();
  const auto death = std::ranges::find_if(result.also, [](const Departure& d) { return deadly(d.outcome); });
  if (deadly(result.outcome) || death == result.also.end()) return;
  std::swap(result.outcome, death->outcome);
  std::swap(*result.signature, death->signature);
}

bool from_outside(const CaseResult& death, const std::string& output) {
  if (output.find(kFromOutside) != std::string::npos) return true;
  const auto sent = [](Outcome outcome, const Signature& signature) {
    return outcome == Outcome::crash && std::ranges::any_of(kSignalsFromOutside, [&](const char* signal) {
             return signature.type.starts_with(signal);
           });
  };
  return (death.signature && sent(death.outcome, *death.signature)) ||
         std::ranges::any_of(death.also, [&](const Departure& d) { return sent(d.outcome, d.signature); });
}

void blame_memory(CaseResult& death) {
  const auto blame = [](Outcome& outcome, Signature& signature) {
    if (outcome != Outcome::crash || !signature.type.starts_with(kKilled)) return;
    outcome = Outcome::oom;
    signature.type = "OOM killer";
  };
  if (death.signature) blame(death.outcome, *death.signature);
  for (Departure& d : death.also) blame(d.outcome, d.signature);
}

bool had_begun(const Case& c, const BlackBox& box) {
  const std::string traced = text_of(box.case_id);  // cut short where the id is long
  return !traced.empty() && id(c).starts_with(traced);
}

bool before_first_case(const BlackBox& box) { return box.case_id.front() == '\0'; }

}  // namespace regather::matrix
