#include "matrix/bench/matrix_speed.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/tell.h"
#include "matrix/runner/capture.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBenchSeconds = 900;

// Peak resident memory, in GiB.
double peak_gib(int whose) {
  rusage usage{};
  ::getrusage(whose, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

std::string find_bench() {
  std::error_code ignored;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", ignored).replace_filename("regather-bench");
  REGATHER_CHECK(::access(path.c_str(), X_OK) == 0, "bench",
                 "no benchmark program '{}': build the target regather-bench, or start `ci/regather bench matrix`",
                 path);
  return path;
}

// "ranks/zero3/4/process_time/real_time" -> {"ranks", "zero3", "4"}.
std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
    if (parts.back() == "process_time") break;
  }
  if (!parts.empty() && parts.back() == "process_time") parts.pop_back();
  return parts;
}

double milliseconds(const Json& entry, const char* member) {
  REGATHER_CHECK(entry.at("time_unit") == "ms", "bench", "benchmark '{}' is not in milliseconds",
                 entry.at("name").get<std::string>());
  return entry.at(member).get<double>();
}

// CPU time by number, of one growing benchmark.
using Points = std::map<double, double>;

// Least squares of cost to a multiple of the number.
Fit fit_of(const std::string& name, const Points& points) {
  double products = 0;
  double squares = 0;
  double sum = 0;
  for (const auto& [number, cost] : points) {
    products += number * cost;
    squares += number * number;
    sum += cost;
  }
  Fit fit{.name = name, .unit_ms = products / squares};
  double off = 0;
  for (const auto& [number, cost] : points) off += std::pow(cost - fit.unit_ms * number, 2);
  const auto count = static_cast<double>(points.size());
  fit.rms_percent = 100 * std::sqrt(off / count) / (sum / count);
  const auto& [fewest, least] = *points.begin();
  const auto& [most, largest] = *points.rbegin();
  fit.growth = largest / most / (least / fewest);
  return fit;
}

void add_entry(const Json& entry, CaseSpeed& speed, std::map<std::string, Points>& growing) {
  const auto name = entry.at("name").get<std::string>();
  REGATHER_CHECK(!entry.value("error_occurred", false), "bench", "benchmark '{}' failed: {}", name,
                 entry.value("error_message", std::string("no reason given")));
  std::vector<std::string> parts = parts_of(name);
  REGATHER_CHECK(!parts.empty(), "bench", "a benchmark without a name");
  if (parts[0] == "backend") {
    speed.backends.push_back({.backend = parts.at(1),
                              .cases_per_second = entry.at("items_per_second").get<double>(),
                              .cpu_ms = entry.at("cpu_ms").get<double>(),
                              .bare_ms = entry.at("bare_ms").get<double>(),
                              .factor = entry.at("factor").get<double>()});
  } else if (parts[0] == "stage") {
    speed.stages.push_back({.name = parts.at(1), .ms = milliseconds(entry, "real_time")});
  } else {
    const double number = std::stod(parts.back());
    parts.pop_back();
    growing[fmt::format("{}", fmt::join(parts, "/"))][number] = milliseconds(entry, "cpu_time");
  }
}

Json to_json(const CardSpeed& card, const CaseSpeed& cases, const std::vector<std::string>& over) {
  Json json{{"card",
             {{"cases", card.cases},
              {"seconds", card.seconds},
              {"runs_per_second", card.runs_per_second()},
              {"memory_gib_at_most", card.memory_gib}}}};
  for (const BackendSpeed& b : cases.backends) {
    json["backends"].push_back({{"backend", b.backend},
                                {"cases_per_second", b.cases_per_second},
                                {"cpu_ms", b.cpu_ms},
                                {"bare_ms", b.bare_ms},
                                {"factor", b.factor}});
  }
  for (const Fit& f : cases.fits) {
    json["fits"].push_back(
        {{"of", f.name}, {"unit_ms", f.unit_ms}, {"rms_percent", f.rms_percent}, {"growth", f.growth}});
  }
  for (const Stage& s : cases.stages) json["stages"].push_back({{"stage", s.name}, {"ms", s.ms}});
  json["over_budget"] = over;
  return json;
}

void print(const CardSpeed& card, const CaseSpeed& cases, const SpeedBudget& budget) {
  fmt::print("card: {} runs in {:.1f} s (at most {:g}), {:.0f} runs/s (at least {:g}), at most {:.2f} GiB ({:g})\n\n",
             card.cases, card.seconds, budget.card_seconds, card.runs_per_second(), budget.runs_per_second,
             card.memory_gib, budget.memory_gib);
  fmt::print("| backend | cases/s | CPU a case, ms | its bare work, ms | factor (at most {:g}) |\n", budget.factor);
  fmt::print("| --- | --- | --- | --- | --- |\n");
  for (const BackendSpeed& b : cases.backends) {
    fmt::print("| {} | {:.0f} | {:.1f} | {:.1f} | {:.2f} |\n", b.backend, b.cases_per_second, b.cpu_ms, b.bare_ms,
               b.factor);
  }
  fmt::print("\n| cost in | CPU a unit, ms | the fit is off by | growth of a unit's cost (at most {:g}) |\n",
             budget.growth);
  fmt::print("| --- | --- | --- | --- |\n");
  for (const Fit& f : cases.fits) {
    fmt::print("| {} | {:.2f} | {:.0f} % | {:.2f} |\n", f.name, f.unit_ms, f.rms_percent, f.growth);
  }
  fmt::print("\n| stage | ms |\n| --- | --- |\n");
  for (const Stage& s : cases.stages) fmt::print("| {} | {:.3f} |\n", s.name, s.ms);
}

}  // namespace

CaseSpeed read_case_speed(std::string_view text) {
  CaseSpeed speed;
  try {
    const Json json = Json::parse(text);
    std::map<std::string, Points> growing;
    for (const Json& entry : json.at("benchmarks")) add_entry(entry, speed, growing);
    for (const auto& [name, points] : growing) speed.fits.push_back(fit_of(name, points));
  } catch (const Json::exception& e) {
    throw Error("bench", fmt::format("regather-bench printed what is not a benchmark's JSON: {}", e.what()), __FILE__,
                __LINE__);
  }
  REGATHER_CHECK(!speed.backends.empty() && !speed.fits.empty(), "bench", "regather-bench measured no backend");
  return speed;
}

std::vector<std::string> over_budget(const CardSpeed& card, const CaseSpeed& cases, const SpeedBudget& budget) {
  std::vector<std::string> over;
  const auto at_most = [&](const std::string& what, double value, double limit) {
    if (!(value <= limit)) over.push_back(fmt::format("{}: {:.2f}, at most {:g}", what, value, limit));
  };
  at_most("seconds of the card", card.seconds, budget.card_seconds);
  at_most("GiB of memory", card.memory_gib, budget.memory_gib);
  if (!(card.runs_per_second() >= budget.runs_per_second)) {
    over.push_back(fmt::format("runs a second: {:.1f}, at least {:g}", card.runs_per_second(), budget.runs_per_second));
  }
  for (const BackendSpeed& b : cases.backends) at_most("factor of " + b.backend, b.factor, budget.factor);
  for (const Fit& f : cases.fits) at_most("growth of the cost in " + f.name, f.growth, budget.growth);
  return over;
}

Exit measure_matrix(const MatrixSpeedOptions& options) {
  const std::string program = find_bench();
  RunOptions card_run = options.run;
  card_run.quiet = true;
  const Ran ran = run(card_run);
  if (ran.cases.empty()) return ran.exit;
  const CardSpeed card{.cases = ran.cases.size(),
                       .seconds = ran.seconds,
                       .memory_gib = card_run.runner.jobs * peak_gib(RUSAGE_CHILDREN) + peak_gib(RUSAGE_SELF)};
  const Captured bench = capture({program, "--benchmark_format=json", "--benchmark_min_time=1"}, {}, kBenchSeconds);
  REGATHER_CHECK(bench.status == 0, "bench", "'{}' failed: {}", program, bench.errors);
  const CaseSpeed cases = read_case_speed(bench.output);

  const SpeedBudget budget;
  const std::vector<std::string> over = over_budget(card, cases, budget);
  if (options.json) {
    fmt::print("{}\n", to_json(card, cases, over).dump(1));
  } else {
    print(card, cases, budget);
  }
  for (const std::string& line : over) tell("RED {}\n", line);
  return over.empty() ? ran.exit : Exit::red;
}

}  // namespace regather::matrix
