#include "matrix/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "case/fixes.h"
#include "matrix/document.h"
#include "matrix/environment.h"
#include "matrix/ledger.h"
#include "matrix/signals.h"
#include "matrix/summary.h"

namespace regather::matrix {
namespace {

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
  return order;
}

void print_line(const std::string& line) {
  if (std::fputs((line + "\n").c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error("output", "cannot write to standard output");
  }
}

// What a rerun of a single case needs besides its id.
std::string rerun_options(const Request& r, const Stack& stack) {
  std::string text;
  if (!r.model.empty()) text += " --model '" + r.model + "'";
  if (r.launcher != Request().launcher) text += " --launcher " + r.launcher;
  if (r.seed != Request().seed) text += fmt::format(" --seed {}", r.seed);
  if (!r.fault.empty()) text += " --fault " + r.fault;
  if (stack.python()) text += " --stack '" + stack.name + "'";
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
std::vector<DocumentCase> collect(const std::vector<Case>& cases, const Schedule& schedule,
                                  const RunnerOptions& options) {
  std::vector<DocumentCase> list;
  for (size_t i = 0; i < cases.size(); ++i) {
    const History& history = schedule.history(i);
    if (history.deciding) {
      list.push_back({*history.deciding, history.line, history.attempts});
      continue;
    }
    CaseResult result;
    result.which = cases[i];
    result.device = options.request.device;
    result.stack = options.stack.name;
    result.attempt = 0;
    result.reason = "the run stopped at the first red case";
    list.push_back({result, to_line(result), {}});
  }
  return list;
}

// The exit code of what ran, and a word on it.
Exit judge(const Document& document, const RunOptions& options, const Request& request) {
  std::vector<CaseResult> results;
  for (const DocumentCase& c : document.cases) results.push_back(c.result);
  if (!options.quiet) {
    fmt::print(stderr, "{}{}cases {}, {:.1f} s, {}/results.json\n",
               print_red(results, rerun_options(request, options.runner.stack), colour_wanted()), print_table(results),
               results.size(), document.seconds, options.out);
  }
  if (std::ranges::any_of(results, red)) return Exit::red;
  if (std::ranges::any_of(results, [](const CaseResult& r) { return r.outcome == Outcome::notrun; })) {
    return Exit::incomplete;
  }
  if (std::ranges::all_of(results, [](const CaseResult& r) { return r.outcome == Outcome::unsupported; })) {
    fmt::print(stderr, "regather: nothing was compared: no selected case is supported\n");
    return Exit::nothing;
  }
  return Exit::green;
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

  make_folder(options.out);
  const Stack& stack = options.runner.stack;
  nlohmann::ordered_json where = environment(stack.name);
  if (stack.python()) where.update(packages_of(stack));
  // What an environment holds changes what a case does there.
  const std::string hash =
      hash_of(plan, request, stack.name + where.value("packages", nlohmann::ordered_json()).dump());
  Ledger ledger(options.out + "/cases.jsonl", hash, options.resume);
  Schedule schedule(plan.cases.size(), options.policy);
  replay(ledger.earlier(), plan.cases, schedule);
  size_t done = 0;
  for (size_t i = 0; i < plan.cases.size(); ++i) done += schedule.settled(i) ? 1 : 0;
  schedule.enqueue(execution_order(plan.cases, options));

  RunEnd end = RunEnd::done;
  {
    const SignalScope signals;
    Progress progress(plan.cases.size(), done);
    end = run_cases(plan.cases, schedule, options.runner,
                    [&](size_t index, const CaseResult& result, const std::string& reply) {
                      std::string line = ledger.append(reply);
                      if (options.lines) print_line(line);
                      const bool ended_red = schedule.record(index, result, std::move(line));
                      if (schedule.settled(index)) ++done;
                      progress.advance(schedule.settled(index), ended_red);
                      return !(options.stop_at_red && ended_red);
                    });
  }
  if (end == RunEnd::interrupted) {
    fmt::print(stderr, "regather: interrupted; {} of {} cases are in '{}/cases.jsonl', --resume goes on from them\n",
               done, plan.cases.size(), options.out);
    return {Exit::interrupted, {}, 0};
  }

  Document document{.definition = plan.definition,
                    .hash = hash,
                    .shard = {},
                    .cases = collect(plan.cases, schedule, options.runner),
                    .seconds = 0};
  const Shard& shard = options.selection.shard;
  if (shard.count > 1) document.shard = fmt::format("{}/{}", shard.index, shard.count);
  document.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  replace_file(options.out + "/results.json", print_document(document, where));

  const Exit exit = judge(document, options, request);
  return {exit, std::move(document.cases), document.seconds};
}

}  // namespace regather::matrix
