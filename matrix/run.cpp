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
#include "base/tell.h"
#include "case/fixes.h"
#include "matrix/death/deaths.h"
#include "matrix/judge/conclusion.h"
#include "matrix/results/document.h"
#include "matrix/results/environment.h"
#include "matrix/results/ledger.h"
#include "matrix/results/summary.h"
#include "matrix/runner/signals.h"

namespace regather::matrix {
namespace {

constexpr size_t kTold = 10;  // deaths on standard error

// Of the selection and of all that changes what a case does: lines under one hash belong together.
std::string hash_of(const Plan& plan, const Request& r, const std::string& stack) {
  return stable_hash(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", plan.fingerprint, REGATHER_VERSION, r.device,
                                 r.launcher, r.transport, r.model, r.seed, r.fault, stack));
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
  return text + options.rules.options();
}

void replay(const std::vector<LedgerLine>& lines, const std::vector<Case>& cases, Schedule& schedule) {
  std::unordered_map<std::string, size_t> index_of;
  for (size_t i = 0; i < cases.size(); ++i) index_of.emplace(id(cases[i]), i);
  for (const LedgerLine& line : lines) {
    const auto at = index_of.find(id(line.result.which));
    if (at != index_of.end()) schedule.replay(at->second, line.result, line.text);
  }
}

// Leaves of the plan what is red by the lines in the output folder, of whatever plan they are; all of it where there
// are none. False when nothing is left.
bool keep_failed(Plan& plan, const SchedulePolicy& policy, const std::string& out) {
  const std::string path = out + "/cases.jsonl";
  if (!std::filesystem::exists(path)) {
    tell("regather: nothing is recorded in '{}': every selected case runs\n", path);
    return true;
  }
  Schedule schedule(plan.cases.size(), policy);
  replay(read_ledger(path), plan.cases, schedule);
  std::vector<Case> failed;
  std::string ids;
  for (size_t i = 0; i < plan.cases.size(); ++i) {
    const auto& deciding = schedule.history(i).deciding;
    if (!deciding || !policy.red(*deciding)) continue;
    failed.push_back(plan.cases[i]);
    ids += id(plan.cases[i]) + "\n";
  }
  if (failed.empty()) {
    tell("regather: no selected case is red in '{}': nothing to run again\n", path);
    return false;
  }
  plan.cases = std::move(failed);
  plan.fingerprint = stable_hash(plan.fingerprint + "\n" + ids);
  return true;
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
  return s.ids.empty() && !s.fixes && s.filter.empty() && s.text.empty() && s.cover == 0 && s.shard.count == 1;
}

}  // namespace

Ran run(const RunOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const Request& request = options.runner.request;
  Plan plan = make_plan(options.selection);
  if (plan.cases.empty()) {
    tell("regather: no case is selected; `regather matrix list` shows what there is\n");
    return {Exit::nothing, {}, 0};
  }
  const Stack& stack = options.runner.stack;
  nlohmann::ordered_json where = environment(stack.name);
  if (stack.python()) where.update(packages_of(stack));
  if (!request.fault.empty()) where["fault"] = request.fault;  // its results are nobody's word on the runtime
  const Judge judge = load_judge(options.rules, setting_of(where, request.device, stack.name));
  SchedulePolicy policy = options.policy;
  policy.red = [&](const CaseResult& result) { return judge.red(judge.of(result, {}).verdict); };
  if (options.rerun_failed && !keep_failed(plan, policy, options.out)) return {Exit::nothing, {}, 0};
  if (options.dry_run) {
    for (const size_t i : execution_order(plan.cases, options)) {
      print_line(id(plan.cases[i]));
    }
    return {Exit::green, {}, 0};
  }

  make_folder(options.out);
  // What an environment holds changes what a case does there.
  const std::string hash =
      hash_of(plan, request, stack.name + where.value("packages", nlohmann::ordered_json()).dump());
  Ledger ledger(options.out + "/cases.jsonl", hash, options.resume);
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
    tell("regather: {} reports of deaths are in '{}/deaths.jsonl'\n", deaths.count(), options.out);
  }
  if (end == RunEnd::interrupted) {
    tell("regather: interrupted; {} of {} cases are in '{}/cases.jsonl', --resume goes on from them\n", done,
         plan.cases.size(), options.out);
    return {Exit::interrupted, {}, 0};
  }

  Document document{.definition = plan.definition,
                    .hash = hash,
                    .shard = {},
                    .selected = plan.selected,
                    .cases = collect(plan.cases, schedule, options),
                    .unreported = 0,
                    .absent = 0,
                    .seconds = 0};
  const Shard& shard = options.selection.shard;
  if (shard.count > 1) document.shard = fmt::format("{}/{}", shard.index, shard.count);
  document.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool all = whole(options.selection) && !options.rerun_failed;
  const Conclusion conclusion = conclude(document, judge, options.rules, all);
  replace_file(options.out + "/results.json", print_document(document, where));
  if (!options.quiet) print(conclusion, document, judge, rerun_options(options), options.out);
  return {conclusion.exit, std::move(document.cases), document.seconds};
}

}  // namespace regather::matrix
