#include "matrix/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "case/fixes.h"
#include "matrix/deaths.h"
#include "matrix/document.h"
#include "matrix/environment.h"
#include "matrix/judge/judge.h"
#include "matrix/judge/load.h"
#include "matrix/ledger.h"
#include "matrix/signals.h"
#include "matrix/summary.h"

namespace regather::matrix {
namespace {

constexpr size_t kTold = 10;  // deaths on standard error

// Of the selection and of all that changes what a case does: lines under one hash belong together.
std::string hash_of(const Plan& plan, const Request& r, const std::string& stack) {
  return stable_hash(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", plan.fingerprint, REGATHER_VERSION, r.device,
                                 r.launcher, r.model, r.seed, r.fault, stack));
}

void make_folder(const std::string& out) {
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error) {
    throw UsageError(
        fmt::format("cannot make the output folder '{}': {}; choose another with --out", out, error.message()));
  }
}

std::vector<size_t> execution_order(const std::vector<Case>& cases, const RunOptions& options) {
  std::vector<size_t> order(cases.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (options.shuffle) {
    Random random(options.runner.request.seed);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    }
  } else if (options.runner.stack.python()) {
    // A case that fails among others runs again in processes of its own. Those without a fix fail most: together each
    // is the first of its processes, and runs once.
    std::ranges::stable_sort(order, {}, [&](size_t i) { return print_fixes(cases[i].fixes); });
  }
  // What needs more ranks than there are does not run.
  if (options.ranks) std::erase_if(order, [&](size_t i) { return cases[i].world > options.ranks->size; });
  return order;
}

void print_line(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error("output", "cannot write to standard output");
  }
}

// What a rerun of a single case needs besides its id.
std::string rerun_options(const RunOptions& options) {
  const Request& r = options.runner.request;
  const Stack& stack = options.runner.stack;
  std::string text;
  if (!r.model.empty()) text += " --model '" + r.model + "'";
  if (r.launcher != Request().launcher) text += " --launcher " + r.launcher;
  if (r.seed != Request().seed) text += fmt::format(" --seed {}", r.seed);
  if (!r.fault.empty()) text += " --fault " + r.fault;
  if (stack.python()) text += " --stack '" + stack.name + "'";
  if (!options.expectations.empty()) text += " --expectations '" + options.expectations + "'";
  if (!options.baseline.empty()) text += " --baseline '" + options.baseline + "'";
  return text;
}

void replay(const std::vector<LedgerLine>& lines, const std::vector<Case>& cases, Schedule& schedule) {
  std::unordered_map<std::string, size_t> index_of;
  for (size_t i = 0; i < cases.size(); ++i) index_of.emplace(id(cases[i]), i);
  for (const LedgerLine& line : lines) {
    const auto at = index_of.find(id(line.result.which));
    if (at != index_of.end()) schedule.replay(at->second, line.result, line.text);
  }
}

// The deciding lines in the plan's order; what has none has not run.
std::vector<DocumentCase> collect(const std::vector<Case>& cases, const Schedule& schedule, const RunOptions& options) {
  std::vector<DocumentCase> list;
  for (size_t i = 0; i < cases.size(); ++i) {
    const History& history = schedule.history(i);
    if (history.deciding) {
      list.push_back({*history.deciding, history.line, history.attempts});
      continue;
    }
    CaseResult result;
    result.which = cases[i];
    result.device = options.runner.request.device;
    result.stack = options.runner.stack.name;
    result.attempt = 0;
    result.reason = options.ranks && cases[i].world > options.ranks->size
                        ? fmt::format("needs {} ranks, {} were started", cases[i].world, options.ranks->size)
                        : "the run stopped at the first red case";
    list.push_back({result, to_line(result), {}});
  }
  return list;
}

// Whether the plan is all of its definition.
bool whole(const Selection& s) {
  return s.ids.empty() && !s.fixes && s.filter.empty() && s.text.empty() && s.shard.count == 1;
}

std::string today() {
  const std::chrono::year_month_day day{std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now())};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

// Verdicts that are not red and yet worth a line.
bool worth_telling(Verdict verdict) {
  return verdict == Verdict::changed || verdict == Verdict::fixed || verdict == Verdict::flaky;
}

// What a run came to, and what is to say of it.
struct Conclusion {
  Exit exit = Exit::green;
  std::vector<CaseResult> results;
  std::vector<Judgement> judgements;  // of each result
  std::vector<std::string> complaints;
  std::vector<std::string> overdue;
};

// Judges, and writes the verdicts into the document.
Conclusion conclude(Document& document, const Judge& judge, const Plan& plan, const RunOptions& options) {
  const bool all = whole(options.selection);
  Conclusion end;
  end.complaints = judge.complaints(plan.cases, plan.definition, all);
  end.overdue = judge.overdue(today());
  const std::vector<std::string> absent = judge.absent(plan.cases, plan.definition, all);
  for (const std::string& which : absent) end.complaints.push_back(which + ": absent, the baseline has it");
  document.absent = absent.size();
  for (DocumentCase& c : document.cases) {
    end.results.push_back(c.result);
    end.judgements.push_back(judge.of(c.result, c.attempts));
    if (!options.expectations.empty() || !options.baseline.empty()) c.verdict = end.judgements.back().verdict;
  }
  end.exit = decide(end.results, end.judgements, !end.complaints.empty());
  return end;
}

void print(const Conclusion& end, const Document& document, const RunOptions& options) {
  std::vector<RedCase> reds;
  std::map<Verdict, size_t> counts;
  for (size_t i = 0; i < end.results.size(); ++i) {
    const CaseResult& result = end.results[i];
    const auto& [verdict, why] = end.judgements[i];
    ++counts[verdict];
    if (red(verdict)) reds.push_back({result, why});
    if (worth_telling(verdict)) {
      fmt::print(stderr, "{} {}\n    {}\n    {}\n", name(verdict), id(result.which), print_signature(result), why);
    }
  }
  fmt::print(stderr, "{}", print_red(reds, rerun_options(options), colour_wanted()));
  for (const std::string& complaint : end.complaints) fmt::print(stderr, "RED {}\n", complaint);
  for (const std::string& entry : end.overdue) fmt::print(stderr, "regather: {}\n", entry);
  fmt::print(stderr, "{}", print_table(end.results));
  if (!options.expectations.empty() || !options.baseline.empty()) {
    std::string text;
    for (const auto& [verdict, count] : counts) text += fmt::format(", {} {}", count, name(verdict));
    fmt::print(stderr, "verdicts: {}\n", text.substr(2));
  }
  fmt::print(stderr, "cases {}, {:.1f} s, {}/results.json\n", end.results.size(), document.seconds, options.out);
  if (end.exit == Exit::nothing) fmt::print(stderr, "regather: nothing was compared: no selected case is supported\n");
}

}  // namespace

Ran run(const RunOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const Request& request = options.runner.request;
  const Plan plan = make_plan(options.selection);
  if (plan.cases.empty()) {
    fmt::print(stderr, "regather: no case is selected; `regather matrix list` shows what there is\n");
    return {Exit::nothing, {}, 0};
  }
  if (options.dry_run) {
    for (const size_t i : execution_order(plan.cases, options)) {
      print_line(id(plan.cases[i]));
    }
    return {Exit::green, {}, 0};
  }

  Expectations expectations;
  if (!options.expectations.empty()) expectations = load_expectations(options.expectations);
  std::optional<PastDocument> baseline;
  if (!options.baseline.empty()) baseline = load_document(options.baseline);

  make_folder(options.out);
  const Stack& stack = options.runner.stack;
  nlohmann::ordered_json where = environment(stack.name);
  if (stack.python()) where.update(packages_of(stack));
  // What an environment holds changes what a case does there.
  const std::string hash =
      hash_of(plan, request, stack.name + where.value("packages", nlohmann::ordered_json()).dump());
  Ledger ledger(options.out + "/cases.jsonl", hash, options.resume);
  const Judge judge(std::move(expectations), std::move(baseline), setting_of(where, request.device, stack.name));
  SchedulePolicy policy = options.policy;
  policy.red = [&](const CaseResult& result) { return red(judge.of(result, {}).verdict); };
  Schedule schedule(plan.cases.size(), std::move(policy));
  replay(ledger.earlier(), plan.cases, schedule);
  size_t done = 0;
  for (size_t i = 0; i < plan.cases.size(); ++i) done += schedule.settled(i) ? 1 : 0;
  schedule.enqueue(execution_order(plan.cases, options));

  Deaths deaths(options.out + "/deaths.jsonl", options.resume);
  RunEnd end = RunEnd::done;
  {
    const SignalScope signals;
    Progress progress(plan.cases.size(), done);
    end = run_cases(
        plan.cases, schedule, options.runner,
        [&](size_t index, const CaseResult& result, const std::string& reply) {
          std::string line = ledger.append(reply);
          if (options.lines) print_line(line);
          const bool ended_red = schedule.record(index, result, std::move(line));
          if (schedule.settled(index)) ++done;
          progress.advance(schedule.settled(index), ended_red);
          return !(options.stop_at_red && ended_red);
        },
        [&](const DeathReport& report) {
          deaths.append(report);
          if (deaths.count() <= kTold && !options.quiet) progress.say(print_death(report));
        });
  }
  if (deaths.count() > 0 && !options.quiet) {
    fmt::print(stderr, "regather: {} reports of deaths are in '{}/deaths.jsonl'\n", deaths.count(), options.out);
  }
  if (end == RunEnd::interrupted) {
    fmt::print(stderr, "regather: interrupted; {} of {} cases are in '{}/cases.jsonl', --resume goes on from them\n",
               done, plan.cases.size(), options.out);
    return {Exit::interrupted, {}, 0};
  }

  Document document{.definition = plan.definition,
                    .hash = hash,
                    .shard = {},
                    .cases = collect(plan.cases, schedule, options),
                    .absent = 0,
                    .seconds = 0};
  const Shard& shard = options.selection.shard;
  if (shard.count > 1) document.shard = fmt::format("{}/{}", shard.index, shard.count);
  document.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Conclusion conclusion = conclude(document, judge, plan, options);
  replace_file(options.out + "/results.json", print_document(document, where));
  if (!options.quiet) print(conclusion, document, options);
  return {conclusion.exit, std::move(document.cases), document.seconds};
}

}  // namespace regather::matrix
