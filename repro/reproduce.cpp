#include "repro/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "case/fixes.h"
#include "matrix/results/summary.h"
#include "matrix/runner/signals.h"

namespace regather::repro {
namespace {

using Json = nlohmann::ordered_json;

bool passes_or_unsupported(const CaseResult& r) {
  return r.outcome == Outcome::pass || r.outcome == Outcome::unsupported;
}

bool is_supported(const CaseResult& r) { return r.outcome != Outcome::unsupported; }

void judge(Reproduction& r) {
  const auto shows = [&](const CaseResult& result) {
    if (!is_supported(result)) return true;
    return !passes_or_unsupported(result) &&
           std::ranges::any_of(r.entry->signatures, [&](const Pattern& p) { return p.matches(result); });
  };
  r.supported = r.without.empty() || std::ranges::any_of(r.without, is_supported);
  r.reproduced = std::ranges::any_of(r.without, is_supported) && std::ranges::all_of(r.without, shows);
  r.repaired = std::ranges::any_of(r.with, is_supported) && std::ranges::all_of(r.with, passes_or_unsupported);
  r.controlled = std::ranges::all_of(r.control, passes_or_unsupported);
  if (r.without.empty() || !r.supported) return;  // nothing happened that could contradict
  switch (r.entry->status) {
    case Status::reproduced:
      r.contradicted = !r.reproduced || !r.repaired || !r.controlled;
      break;
    case Status::recognised:
      break;
    case Status::open:
      r.contradicted = !r.reproduced || r.repaired || !r.controlled;
      break;
    case Status::refuted:
      r.contradicted = !std::ranges::all_of(r.without, passes_or_unsupported) || !r.controlled;
      break;
  }
}

Json lines(const std::vector<CaseResult>& results) {
  Json list = Json::array();
  for (const CaseResult& result : results) list.push_back(regather::to_json(result));
  return list;
}

std::string print_cell(const char* title, const CaseResult& result, const std::string& note) {
  std::string text =
      fmt::format("  {:<8} {}{}\n           {}", title, id(result.which), note, matrix::print_signature(result));
  if (result.outcome == Outcome::pass && result.gradients) {
    text += fmt::format(", gradients within {:.1e} of the reference (relative L2; at most {:.0e})",
                        result.gradients->relative_l2, result.gradients->tolerance);
  }
  return text + fmt::format(", {:.0f} ms\n", result.milliseconds);
}

std::string print_verdict(const Reproduction& r) {
  if (r.without.empty()) return "nothing to run";
  if (!r.supported) return "not supported here";
  const std::string what = r.reproduced ? r.repaired ? "reproduced and repaired" : "reproduced" : "does not show";
  return what + (r.contradicted ? ": CONTRADICTS the register" : ": as the register says");
}

}  // namespace

std::vector<Case> with_fixes(const std::vector<Case>& cases, const Fixes& fixes) {
  std::vector<Case> result = cases;
  for (Case& c : result) {
    c.fixes = fixes;
    if (const auto why = illegal(c)) throw UsageError(fmt::format("--fix {}: {}", print_fixes(fixes), *why));
  }
  return result;
}

std::optional<std::vector<Reproduction>> reproduce(const std::vector<const Entry*>& entries,
                                                   const ReproduceOptions& options) {
  // Entries share cases: each runs once.
  std::map<std::string, size_t> index_of;
  std::vector<Case> cases;
  const auto add = [&](const std::vector<Case>& list) {
    for (const Case& c : list) {
      if (index_of.emplace(id(c), cases.size()).second) cases.push_back(c);
    }
  };
  std::vector<std::vector<Case>> with;
  for (const Entry* entry : entries) {
    with.push_back(options.fixes ? with_fixes(entry->without, *options.fixes) : entry->with);
    add(entry->without);
    add(with.back());
    add(entry->control);
  }

  matrix::Schedule schedule(cases.size(), {});
  std::vector<size_t> order(cases.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  schedule.enqueue(order);
  if (!cases.empty()) {
    const matrix::SignalScope signals;
    matrix::RunnerOptions runner;
    runner.jobs = options.jobs;
    runner.request.model = options.model;
    const matrix::RunEnd end = matrix::run_cases(
        cases, schedule, runner,
        [&](size_t index, const CaseResult& result, const std::string& line) {
          schedule.record(index, result, line);
          return true;
        },
        [](const matrix::DeathReport&) {});
    if (end == matrix::RunEnd::interrupted) return std::nullopt;
  }

  const auto results_of = [&](const std::vector<Case>& list) {
    std::vector<CaseResult> results;
    results.reserve(list.size());
    for (const Case& c : list) results.push_back(*schedule.history(index_of.at(id(c))).deciding);
    return results;
  };
  std::vector<Reproduction> reproductions;
  for (size_t i = 0; i < entries.size(); ++i) {
    Reproduction r;
    r.entry = entries[i];
    r.without = results_of(entries[i]->without);
    r.with = results_of(with[i]);
    r.control = results_of(entries[i]->control);
    judge(r);
    reproductions.push_back(std::move(r));
  }
  return reproductions;
}

Json to_json(const Reproduction& r) {
  return {{"id", r.entry->id},
          {"without", lines(r.without)},
          {"with", lines(r.with)},
          {"control", lines(r.control)},
          {"reproduced", r.reproduced},
          {"repaired", r.repaired},
          {"status", name(r.entry->status)},
          {"why", r.entry->why},
          {"upstream", r.entry->upstream},
          {"contradicted", r.contradicted}};
}

std::string print(const Reproduction& r) {
  const Entry& entry = *r.entry;
  std::string text = fmt::format("{}: {}\n  upstream {}\n  status   {}: {}\n", entry.id, entry.title,
                                 entry.upstream.empty() ? "(silent)" : entry.upstream, name(entry.status), entry.why);
  for (const CaseResult& result : r.without) text += print_cell("without", result, "");
  for (size_t i = 0; i < r.with.size(); ++i) {
    text += print_cell("with", r.with[i], fmt::format("  ({})", repair(r.without[i].which, r.with[i].which)));
  }
  for (const CaseResult& result : r.control) text += print_cell("control", result, "");
  return text + fmt::format("  {}\n", print_verdict(r));
}

}  // namespace regather::repro
