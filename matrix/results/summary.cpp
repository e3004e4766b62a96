#include "matrix/results/summary.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/tell.h"
#include "matrix/results/verdict.h"

namespace regather::matrix {
namespace {

constexpr std::array kColumns{"fixes off", "in part", "fixes on"};
constexpr size_t kLongestText = 300;

size_t column_of(const Case& c) {
  if (c.fixes.empty()) return 0;
  return fully_fixed(c) ? 2 : 1;
}

using Counts = std::map<Outcome, int>;

std::string print_counts(const Counts& counts) {
  std::string text;
  for (const auto& [outcome, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name(outcome));
  }
  return text.empty() ? "-" : text;
}

// One line, so that a list of red cases stays one.
std::string first_words(const std::string& text) {
  std::string line = text.substr(0, kLongestText);
  std::ranges::replace(line, '\n', ' ');
  return text.size() > kLongestText ? line + "..." : line;
}

}  // namespace

std::string print_table(const std::vector<CaseResult>& results) {
  std::map<Backend, std::array<Counts, kColumns.size()>> rows;
  std::map<Backend, std::string> names;
  for (const CaseResult& result : results) {
    ++rows[result.which.backend][column_of(result.which)][result.outcome];
    names[result.which.backend] = axis_values(result.which).front().value;
  }
  std::array<bool, kColumns.size()> used{};
  std::array<size_t, kColumns.size()> widths{};
  for (const auto& [backend, row] : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      used[i] = used[i] || !row[i].empty();
      widths[i] = std::max({widths[i], std::string_view(kColumns[i]).size(), print_counts(row[i]).size()});
    }
  }
  const auto line = [&](const std::string& head, const auto& cell) {
    std::string text = fmt::format("{:<8}", head);
    for (size_t i = 0; i < kColumns.size(); ++i) {
      if (used[i]) text += fmt::format("  {:<{}}", cell(i), widths[i]);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line("backend", [](size_t i) { return std::string(kColumns[i]); });
  for (const auto& entry : rows) {
    text += line(names[entry.first], [&](size_t i) { return print_counts(entry.second[i]); });
  }
  return text;
}

std::string print_signature(const CaseResult& result) {
  std::string text = name(result.outcome);
  if (!result.signature) return result.reason.empty() ? text : text + ": " + first_words(result.reason);
  const Signature& s = *result.signature;
  text += fmt::format(" in {} of step {} on rank {}", name(s.phase), s.step, s.rank);
  if (!s.type.empty()) text += ": " + s.type;
  if (!s.text.empty()) text += ": " + first_words(s.text);
  return s.mechanism.empty() ? text : text + " [" + s.mechanism + "]";
}

std::string print_red(const std::vector<RedCase>& cases, const std::string& options, bool colour) {
  std::string text;
  for (const auto& [result, why] : cases) {
    text += fmt::format("{}RED{} {}\n    {}\n{}    regather matrix run --case '{}'{}\n", colour ? "\033[1;31m" : "",
                        colour ? "\033[0m" : "", id(result.which), print_signature(result),
                        why.empty() ? "" : "    " + why + "\n", id(result.which), options);
  }
  return text;
}

Progress::Progress(size_t cases, size_t done) : terminal_(::isatty(STDERR_FILENO) == 1), cases_(cases), done_(done) {}

Progress::~Progress() {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::say(const std::string& line) {
  tell("{}{}\n", terminal_ ? "\r\033[K" : "", line);
  shown_ = {};
}

void Progress::advance(bool settled, bool is_red) {
  ++ran_;
  if (settled) ++done_;
  if (is_red) ++red_;
  const Clock::time_point now = Clock::now();
  if (!terminal_ || now - shown_ < std::chrono::milliseconds(100)) return;
  shown_ = now;
  const double rate = static_cast<double>(ran_) / std::max(1e-3, std::chrono::duration<double>(now - begin_).count());
  tell("\r\033[K{}/{} cases, {:.1f}/s, {:.0f} s left, {} red", done_, cases_, rate,
       static_cast<double>(cases_ - std::min(done_, cases_)) / rate, red_);
  std::fflush(stderr);
}

bool colour_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  return ::isatty(STDERR_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
}

}  // namespace regather::matrix
