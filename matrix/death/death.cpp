#include "matrix/death/death.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "matrix/death/backtrace.h"
#include "matrix/death/rank_traces.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestTail = 2000;
constexpr std::string_view kFatal = "regather-worker: fatal signal, stack of rank ";
constexpr std::string_view kFromOutside = "regather-worker: signal from outside";
constexpr const char* kKilled = "signal 9 ";
constexpr std::array kSignalsFromOutside{kKilled, "signal 15 ", "signal 2 ", "signal 1 "};

bool deadly(Outcome outcome) {
  return outcome == Outcome::crash || outcome == Outcome::hang || outcome == Outcome::oom;
}

// Makes the first such failure the outcome, if there is one.
void put_first(CaseResult& result, bool (*wanted)(Outcome)) {
  if (!result.signature) result.signature.emplace();
  const auto found = std::ranges::find_if(result.also, [&](const Departure& d) { return wanted(d.outcome); });
  if (wanted(result.outcome) || found == result.also.end()) return;
  std::swap(result.outcome, found->outcome);
  std::swap(*result.signature, found->signature);
}

std::optional<int> rank_after(const std::string& text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return std::nullopt;
  int rank = -1;
  std::from_chars(text.data() + at + words.size(), text.data() + text.size(), rank);
  return rank;
}

// What the worker wrote, taken apart.
TakenApart said(const std::string& error_tail) { return take_apart(readable_backtrace(error_tail)); }

bool fatal(const ThreadStack& stack) { return stack.head.find(" signal") != std::string::npos; }

// That of the rank's fatal signal, or of another thread's, or what a dump shows of the rank.
const ThreadStack* stack_of(const TakenApart& said, int rank, bool of_hang) {
  const std::string name = fmt::format("rank {}", rank);
  const auto find = [&](auto matches) {
    const auto at = std::ranges::find_if(said.stacks, matches);
    return at == said.stacks.end() ? nullptr : &*at;
  };
  if (!of_hang) {
    const auto* own = find([&](const ThreadStack& s) { return fatal(s) && s.thread == name; });
    return own != nullptr ? own : find(fatal);
  }
  return find([&](const ThreadStack& s) { return s.thread == name; });
}

// The innermost function that says something: not a library's helper that raises the signal.
std::string function_of(const ThreadStack* stack) {
  if (stack == nullptr) return "";
  const auto telling = [](const std::string& frame) { return frame.find("::") != std::string::npos; };
  const auto at = std::ranges::find_if(stack->frames, telling);
  return at == stack->frames.end() ? "" : *at;
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json backtrace(const ThreadStack* stack) {
  Json frames = Json::array();
  if (stack != nullptr) frames = stack->frames;
  return frames;
}

// "signal 11 (SIGSEGV)" -> "SIGSEGV".
std::string signal_in(const std::string& type) {
  const size_t open = type.find('(');
  if (!type.starts_with("signal ") || open == std::string::npos) return "";
  return type.substr(open + 1, type.find(')') - open - 1);
}

std::string state_of(const SeenRank& rank, const std::vector<int>& stopped) {
  if (std::ranges::find(stopped, rank.number) != stopped.end()) return "stopped";
  switch (rank.state) {
    case SeenRank::State::not_begun:
      return "not begun";
    case SeenRank::State::ended:
      return "ended";
    case SeenRank::State::runs:
      break;
  }
  return "runs";
}

struct Scene {
  const std::vector<SeenRank>& ranks;
  const std::vector<int>& stopped;
  const TakenApart& said;
};

std::string details_of(Outcome outcome, const Signature& signature, const Scene& scene) {
  const bool hang = outcome == Outcome::hang;
  const auto seen = std::ranges::find(scene.ranks, signature.rank, &SeenRank::number);
  Json details{{"rank", signature.rank},
               {"step", signature.step},
               {"phase", name(signature.phase)},
               {"signal", or_null(signal_in(signature.type))},
               {"last_collective", or_null(seen == scene.ranks.end() ? "" : seen->last)},
               {"backtrace", backtrace(stack_of(scene.said, signature.rank, hang))}};
  if (hang) {
    Json ranks = Json::array();
    for (const SeenRank& rank : scene.ranks) {
      const bool runs = rank.state == SeenRank::State::runs;
      ranks.push_back({{"rank", rank.number},
                       {"state", state_of(rank, scene.stopped)},
                       {"step", runs ? Json(rank.step) : Json()},
                       {"phase", runs ? Json(name(rank.phase)) : Json()},
                       {"collectives", rank.recent},
                       {"backtrace", backtrace(stack_of(scene.said, rank.number, hang))}});
    }
    details["ranks"] = std::move(ranks);
  }
  return details.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The rank of a crash: that which the worker itself, or what watches its processes, says.
std::optional<int> named_rank(const std::string& error_tail) {
  if (const auto rank = rank_after(error_tail, kFatal)) return rank;
  return rank_after(error_tail, "on rank ");
}

std::string where(const SeenRank& rank) {
  return fmt::format("{}, last collective {}", rank.text(), rank.last.empty() ? "none" : rank.last);
}

std::string where_in_hang(const SeenRank& rank) {
  if (rank.state != SeenRank::State::runs) return rank.text();
  return fmt::format("{}, last collectives {}", rank.text(),
                     rank.recent.empty() ? "none" : fmt::format("{}", fmt::join(rank.recent, ", ")));
}

void add(std::string& text, const std::string& part) {
  if (part.empty()) return;
  if (!text.empty()) text += "; ";
  text += part;
}

void place(Signature& signature, const SeenRank& rank) {
  signature.rank = rank.number;
  signature.step = rank.step;
  signature.phase = rank.phase;
}

}  // namespace

std::string RecordedDeath::line() const {
  const std::string plain = to_line(result);
  return fmt::format("{},\"death\":{}}}", plain.substr(0, plain.rfind('}')), details);
}

RecordedDeath describe_death(const Case& c, const Death& death, const BlackBox& box) {
  RecordedDeath recorded;
  recorded.result.which = c;
  recorded.result.outcome = death.outcome;
  Signature& signature = recorded.result.signature.emplace();
  signature.type = death.type;
  signature.text = death.text;
  const bool hang = death.outcome == Outcome::hang;
  std::vector<SeenRank> ranks = seen_ranks(c, box);
  if (death.only) std::erase_if(ranks, [&](const SeenRank& rank) { return rank.number != *death.only; });
  const TakenApart words = said(death.error_tail);
  auto culprit = waited_for(ranks, death.stopped);
  if (const auto named = hang ? std::nullopt : named_rank(death.error_tail);
      named && *named >= 0 && static_cast<size_t>(*named) < ranks.size()) {
    culprit = Culprit{*named, ""};
  }
  if (death.only) culprit = Culprit{*death.only, ""};
  if (culprit) {
    const auto at = std::ranges::find(ranks, culprit->rank, &SeenRank::number);
    signature.rank = culprit->rank;
    if (at != ranks.end()) place(signature, *at);
    if (!hang && at != ranks.end()) add(signature.text, where(*at));
    if (hang) add(signature.text, culprit->why);
  }
  if (hang) {
    for (const SeenRank& rank : ranks) add(signature.text, where_in_hang(rank));
  }
  const std::string function = function_of(stack_of(words, signature.rank, hang));
  if (!function.empty()) add(signature.text, "in " + function);
  if (!words.words.empty()) {
    add(signature.text, fmt::format("standard error: {}", last_lines(words.words, kLongestTail)));
  }
  recorded.details = details_of(death.outcome, signature, {ranks, death.stopped, words});
  return recorded;
}

RecordedDeath describe_told_death(CaseResult told, const std::string& error_tail, const BlackBox& box) {
  const std::vector<SeenRank> ranks = seen_ranks(told.which, box);
  const TakenApart words = said(error_tail);
  // A crash ends a case whatever failed before, as it does where ranks are threads; a hang is a failure among others.
  put_first(told, [](Outcome outcome) { return outcome == Outcome::crash || outcome == Outcome::oom; });
  Outcome outcome = told.outcome;
  Signature* signature = &*told.signature;
  if (!deadly(outcome)) {
    const auto late = std::ranges::find_if(told.also, [](const Departure& d) { return deadly(d.outcome); });
    outcome = late->outcome;
    signature = &late->signature;
  }
  if (outcome == Outcome::crash) {
    const std::string function = function_of(stack_of(words, signature->rank, false));
    if (!function.empty()) add(signature->text, "in " + function);
  }
  std::string details = details_of(outcome, *signature, {ranks, {}, words});
  return {.result = std::move(told), .details = std::move(details)};
}

bool tells_of_death(const CaseResult& result) {
  return deadly(result.outcome) ||
         std::ranges::any_of(result.also, [](const Departure& d) { return deadly(d.outcome); });
}

void put_death_first(CaseResult& result) { put_first(result, deadly); }

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

bool before_first_case(const BlackBox& box) { return box.case_id.front() == '\0'; }

}  // namespace regather::matrix
