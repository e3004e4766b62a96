// What a case costs, beside the work that it cannot do without: read by `regather bench matrix`.
#include <benchmark/benchmark.h>

#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "bare_work.h"
#include "case/fixes.h"
#include "comm/launch.h"
#include "train/merge.h"
#include "train/prepare.h"
#include "train/run_case.h"

namespace {

using namespace regather;

// The card's cases of one backend with their recommended fixes: all of them pass, so that each runs to its end.
std::vector<Case> card_cases(Backend backend, int world = 2) {
  std::vector<Case> cases;
  for (const char* loss : {"sft", "grpo", "dpo", "kto"}) {
    for (const char* checkpoint : {"none", "reentrant", "nonreentrant"}) {
      for (const char* frozen : {"none", "norms", "lora", "head", "embedding"}) {
        Case c;
        c.backend = backend;
        c.world = world;
        set_axis(c, "loss", loss);
        set_axis(c, "checkpoint", checkpoint);
        set_axis(c, "frozen", frozen);
        c.fixes = recommended_fixes(c);
        cases.push_back(c);
      }
    }
  }
  return cases;
}

// One for the whole program: models and references are made once, as in a worker.
train::Runner& runner() {
  static train::Runner one;
  return one;
}

void run_all(benchmark::State& state, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const CaseResult result = runner().run(c, {});
    if (result.outcome != Outcome::pass) state.SkipWithError((id(c) + " does not pass").c_str());
  }
}

void make_ready(const std::vector<Case>& cases) {
  for (const Case& c : cases) runner().prepare(c, {});
}

void per_case(benchmark::State& state, size_t cases) {
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(cases));
}

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Cases of a backend; `factor` is their CPU time over that of the bare work of their ranks, taken in turn with them.
void backend_cases(benchmark::State& state, Backend backend) {
  const std::vector<Case> cases = card_cases(backend);
  make_ready(cases);
  double whole = 0;
  double bare = 0;
  for (auto _ : state) {
    const double begin = cpu_seconds();
    run_all(state, cases);
    whole += cpu_seconds() - begin;
    state.PauseTiming();
    for (const Case& c : cases) {
      const train::Prepared ready = runner().prepare(c, {});
      bare += c.world * bench::bare_work(c, *ready.setting, *ready.reference).all();
    }
    state.ResumeTiming();
  }
  per_case(state, cases.size());
  const double runs = static_cast<double>(state.iterations()) * static_cast<double>(cases.size());
  state.counters["cpu_ms"] = 1e3 * whole / runs;
  state.counters["bare_ms"] = 1e3 * bare / runs;
  state.counters["factor"] = whole / bare;
}

// Cost in the number of cases: the plan's first so many, each backend in turn.
void case_count(benchmark::State& state) {
  std::vector<Case> all;
  for (const Backend backend : {Backend::ddp, Backend::zero1, Backend::zero2, Backend::zero3, Backend::fsdp2}) {
    for (const Case& c : card_cases(backend)) all.push_back(c);
  }
  // Spread, so that every count holds the same mix.
  std::vector<Case> cases;
  const auto count = static_cast<size_t>(state.range(0));
  for (size_t i = 0; i < count; ++i) cases.push_back(all[i * all.size() / count]);
  make_ready(cases);
  for (auto _ : state) run_all(state, cases);
  per_case(state, count);
}

// Cost in ranks: one case at world 1 (as far as its backend shards at all), 2, 4 and 8.
void rank_count(benchmark::State& state, Backend backend) {
  std::vector<Case> cases = card_cases(backend, static_cast<int>(state.range(0)));
  std::vector<Case> few;
  for (size_t i = 0; i < cases.size(); i += 7) few.push_back(cases[i]);
  make_ready(few);
  for (auto _ : state) run_all(state, few);
  per_case(state, few.size());
}

Case one_case(const char* id) { return parse_id(id); }

const char* const kOneCase = "zero3/dpo/checkpoint=nonreentrant/fix=gather+recompute_hold+redirect";

// The stages of a case.

void stage_reference(benchmark::State& state) {
  const Case c = one_case(kOneCase);
  const train::Prepared ready = runner().prepare(c, {});
  for (auto _ : state) benchmark::DoNotOptimize(train::compute_reference(*ready.setting, c));
}

void stage_model(benchmark::State& state) {
  const Case c = one_case(kOneCase);
  const train::Prepared ready = runner().prepare(c, {});
  for (auto _ : state) benchmark::DoNotOptimize(train::prepare_model(*ready.setting, c));
}

void stage_group(benchmark::State& state, comm::LaunchOptions options,
                 std::vector<comm::RankEnd> (*launch)(const comm::LaunchOptions&, const comm::RankFunction&)) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(launch(options, [](comm::World& world) {
      world.barrier();
      return std::string("done");
    }));
  }
}

void stage_line(benchmark::State& state) {
  const CaseResult result = runner().run(one_case(kOneCase), {});
  for (auto _ : state) {
    const CaseResult rank = result_from_line(to_line(result));
    benchmark::DoNotOptimize(to_line(train::merge({rank, rank})));
  }
}

void stage_bare(benchmark::State& state) {
  const Case c = one_case(kOneCase);
  const train::Prepared ready = runner().prepare(c, {});
  bench::BareSeconds sum;
  for (auto _ : state) {
    const bench::BareSeconds once = bench::bare_work(c, *ready.setting, *ready.reference);
    sum.forward += once.forward;
    sum.backward += once.backward;
    sum.step += once.step;
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["forward_ms"] = 1e3 * sum.forward / runs;
  state.counters["backward_ms"] = 1e3 * sum.backward / runs;
  state.counters["step_ms"] = 1e3 * sum.step / runs;
}

void stage_whole(benchmark::State& state) {
  const Case c = one_case(kOneCase);
  runner().prepare(c, {});
  for (auto _ : state) benchmark::DoNotOptimize(runner().run(c, {}));
}

const std::map<std::string, Backend> kBackends{{"ddp", Backend::ddp},
                                               {"zero1", Backend::zero1},
                                               {"zero2", Backend::zero2},
                                               {"zero3", Backend::zero3},
                                               {"fsdp2", Backend::fsdp2}};

benchmark::internal::Benchmark* add(const std::string& name, const std::function<void(benchmark::State&)>& function) {
  return benchmark::RegisterBenchmark(name.c_str(), function)
      ->MeasureProcessCPUTime()
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void register_all() {
  for (const auto& [name, backend] : kBackends) {
    add("backend/" + name, [b = backend](benchmark::State& state) { backend_cases(state, b); });
  }
  add("cases", case_count)->RangeMultiplier(2)->Range(15, 240);
  for (const auto& [name, backend] : kBackends) {
    add("ranks/" + name, [b = backend](benchmark::State& state) { rank_count(state, b); })
        ->RangeMultiplier(2)
        ->Range(1, 8);
  }
  add("stage/reference", stage_reference);
  add("stage/model", stage_model);
  add("stage/group_of_threads", [](benchmark::State& s) { stage_group(s, {}, comm::run_threads); });
  add("stage/group_of_processes", [](benchmark::State& s) { stage_group(s, {}, comm::run_processes); });
  add("stage/line", stage_line);
  add("stage/bare", stage_bare);
  add("stage/whole", stage_whole);
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
