#include "repro/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "case/fixes.h"
#include "matrix/signals.h"
#include "matrix/summary.h"

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
  r.supported = std::ranges::any_of(r.without, is_supported);
  r.reproduced = r.supported && std::ranges::all_of(r.without, shows);
  r.repaired = std::ranges::any_of(r.with, is_supported) && std::ranges::all_of(r.with, passes_or_unsupported);
  r.controlled = std::ranges::all_of(r.control, passes_or_unsupported);
  if (!r.supported) return;  // nothing happened that could contradict
  switch (r.entry->status) {
    case Status::fixed:
      r.contradicted = !r.reproduced || !r.repaired || !r.controlled;
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

std::string print_cells(const std::vector<CaseResult>& results, const char* title) {
  std::string text;
  for (const CaseResult& result : results) {
    text += fmt::format("  {:<8} {}\n           {}\n", title, id(result.which), matrix::print_signature(result));
  }
  return text;
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
                                                   const std::optional<Fixes>& fixes) {
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
    with.push_back(fixes ? with_fixes(entry->without, *fixes) : entry->with);
    add(entry->without);
    add(with.back());
    add(entry->control);
  }

  matrix::Schedule schedule(cases.size(), {});
  std::vector<size_t> order(cases.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  schedule.enqueue(order);
  const matrix::SignalScope signals;
  const matrix::RunEnd end = matrix::run_cases(
      cases, schedule, {},
      [&](size_t index, const CaseResult& result, const std::string& line) {
        schedule.record(index, result, line);
        return true;
      },
      [](const matrix::DeathReport&) {});
  if (end == matrix::RunEnd::interrupted) return std::nullopt;

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
          {"status", name(r.entry->status)}};
}

std::string print(const Reproduction& r) {
  std::string text = fmt::format("{}: {}\n", r.entry->id, r.entry->title);
  text += print_cells(r.without, "without");
  text += print_cells(r.with, "with");
  text += print_cells(r.control, "control");
  const char* verdict = !r.supported ? "not supported here" : r.contradicted ? "contradicted" : "as the register says";
  return text + fmt::format("  {}reproduced, {}repaired, status {}: {}\n", r.reproduced ? "" : "not ",
                            r.repaired ? "" : "not ", name(r.entry->status), verdict);
}

}  // namespace regather::repro
