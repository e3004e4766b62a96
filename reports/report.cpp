#include "reports/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "case/fixes.h"
#include "matrix/judge/judge.h"
#include "matrix/results/summary.h"

namespace regather::reports {
namespace {

using matrix::PastCase;

bool red_of(const PastCase& c) { return c.verdict ? matrix::kDefaultGate.contains(*c.verdict) : matrix::red(c.result); }

// Of a case that did not fail.
std::string why_red_without_failure(const CaseResult& result) {
  if (result.outcome == Outcome::pass) return "passes though its expectation says that it fails";
  return fmt::format("{}: {}", result.outcome == Outcome::notrun ? "has not run" : "is not supported", result.reason);
}

// Of the items that are the same case but for its fixes, and pass, the one with the fewest fixes.
void find_repairs(std::vector<Item>& items) {
  std::map<std::string, size_t> passing;
  const auto without_fixes = [](Case c) {
    c.fixes.clear();
    return id(c);
  };
  for (size_t i = 0; i < items.size(); ++i) {
    const CaseResult& result = items[i].of.result;
    if (result.outcome != Outcome::pass) continue;
    const auto [at, added] = passing.emplace(without_fixes(result.which), i);
    if (!added && result.which.fixes.size() < items[at->second].of.result.which.fixes.size()) at->second = i;
  }
  for (Item& item : items) {
    if (!failed(item.of.result)) continue;
    const auto at = passing.find(without_fixes(item.of.result.which));
    if (at != passing.end()) item.repaired = at->second;
  }
}

// What is said of so many cases that have come to one outcome.
struct Kind {
  std::string_view one;
  std::string_view many;
  int count = 0;
};

// The cases with these fixes: "120 pass, 60 compute wrong gradients without an error and 120 end in an error".
std::string counts_in_words(const std::vector<const CaseResult*>& results) {
  std::array kinds{Kind{"passes", "pass"},
                   Kind{"computes wrong gradients without an error", "compute wrong gradients without an error"},
                   Kind{"ends in an error", "end in an error"},
                   Kind{"crashes, hangs or runs out of memory", "crash, hang or run out of memory"},
                   Kind{"breaks an invariant", "break an invariant"},
                   Kind{"was compared with nothing", "were compared with nothing"},
                   Kind{"is not supported", "are not supported"},
                   Kind{"has not run", "have not run"}};
  for (const CaseResult* result : results) {
    const size_t kind = [&]() -> size_t {
      switch (result->outcome) {
        case Outcome::pass:
          return 0;
        case Outcome::wrong_gradient:
        case Outcome::nonfinite:
          return 1;
        case Outcome::error:
          return 2;
        case Outcome::hang:
        case Outcome::crash:
        case Outcome::oom:
          return 3;
        case Outcome::invariant:
          return 4;
        case Outcome::unchecked:
          return 5;
        case Outcome::unsupported:
          return 6;
        case Outcome::notrun:
          return 7;
      }
      return 7;
    }();
    ++kinds[kind].count;
  }
  std::vector<std::string> parts;
  for (const Kind& kind : kinds) {
    if (kind.count == 0) continue;
    const bool all = static_cast<size_t>(kind.count) == results.size() && results.size() > 1;
    parts.push_back(fmt::format("{}{} {}", all ? "all " : "", kind.count, kind.count == 1 ? kind.one : kind.many));
  }
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

}  // namespace

bool failed(const CaseResult& result) {
  return result.outcome != Outcome::pass && result.outcome != Outcome::unsupported && result.outcome != Outcome::notrun;
}

Report make_report(const std::string& file, matrix::PastDocument document, const IssuesOf& issues_of, int64_t ended) {
  Report report;
  report.file = file;
  report.ended = ended;
  std::map<std::string, Issue> named;
  for (PastCase& c : document.cases) {
    Item item{.of = std::move(c), .red = false, .failure = "", .issues = {}, .repaired = {}};
    item.red = red_of(item.of);
    if (item.red) item.failure = why_red_without_failure(item.of.result);
    if (failed(item.of.result)) {
      item.failure = matrix::print_signature(item.of.result);
      for (Issue& issue : issues_of(item.of.result)) {
        item.issues.push_back(issue.id);
        named.emplace(issue.id, std::move(issue));
      }
    }
    report.items.push_back(std::move(item));
  }
  document.cases.clear();
  find_repairs(report.items);
  for (auto& [which, issue] : named) report.issues.push_back(std::move(issue));
  report.missing = document.asked > report.items.size() ? document.asked - report.items.size() : 0;
  report.document = std::move(document);
  return report;
}

std::string verdict_sentence(const Report& report) {
  std::array<std::vector<const CaseResult*>, 3> groups;
  std::set<std::string> devices;
  size_t red = 0;
  for (const Item& item : report.items) {
    const CaseResult& result = item.of.result;
    groups[result.which.fixes.empty() ? 0 : matrix::fully_fixed(result.which) ? 2 : 1].push_back(&result);
    devices.insert(result.device);
    red += item.red ? 1 : 0;
  }
  std::string text = fmt::format("{} case{} on {}", report.items.size(), report.items.size() == 1 ? "" : "s",
                                 devices.empty() ? "no device" : fmt::format("{}", fmt::join(devices, ", ")));
  constexpr std::array kWith{"without fixes", "with some of the fixes", "with the recommended fixes"};
  std::string_view between = ": ";
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].empty()) continue;
    text += fmt::format("{}{} {}", std::exchange(between, "; "), kWith[i], counts_in_words(groups[i]));
  }
  text += red == 0 ? ". Nothing is red." : fmt::format(". {} {} red.", red, red == 1 ? "is" : "are");
  if (report.missing > 0)
    text += fmt::format(" {} of the plan's cases {} no result.", report.missing, report.missing == 1 ? "has" : "have");
  return text;
}

std::string rerun_command(const Report& report, const CaseResult& result) {
  // A name out of a document; within single quotes a shell takes all but these.
  const auto quoted = [](const std::string& name) {
    std::string text;
    for (const char c : name) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return "'" + text + "'";
  };
  std::string text = fmt::format("regather matrix run --case '{}'", id(result.which));
  if (result.device != "cpu") text += result.device == "cuda" ? " --device cuda" : " --device " + quoted(result.device);
  if (result.stack != "reference") text += " --stack " + quoted(result.stack);
  const auto fault = report.document.environment.find("fault");
  if (fault != report.document.environment.end() && fault->is_string()) {
    text += " --fault " + quoted(fault->get<std::string>());
  }
  return text;
}

}  // namespace regather::reports
