#include "matrix/fidelity/speed.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/tell.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  std::string backend;
  size_t cells = 0;
  double real = 0;  // seconds
  double runtime = 0;
};

std::string backend_of(const Case& c) { return axis_values(c).front().value; }

Json to_json(const Row& row) {
  return {{"backend", row.backend},
          {"cells", row.cells},
          {"real_seconds", row.real},
          {"runtime_seconds", row.runtime},
          {"ratio", row.real / row.runtime}};
}

void print(const std::vector<Row>& rows) {
  fmt::print("| backend | cells | real packages, s | regather, s | times faster |\n| --- | --- | --- | --- | --- |\n");
  for (const Row& row : rows) {
    fmt::print("| {} | {} | {:.1f} | {:.2f} | {:.0f} |\n", row.backend, row.cells, row.real, row.runtime,
               row.real / row.runtime);
  }
}

}  // namespace

Exit compare_speed(const SpeedOptions& options) {
  RunOptions real = options.run;
  real.quiet = true;
  real.runner.jobs = 1;
  RunOptions runtime = real;
  runtime.runner.stack = {};
  real.out += "/python";
  runtime.out += "/reference";
  const Ran there = run(real);
  if (there.cases.empty()) return there.exit;
  const Ran here = run(runtime);
  if (here.cases.empty()) return here.exit;
  runtime.runner.jobs = options.jobs;
  const Ran whole = run(runtime);
  if (whole.cases.empty()) return whole.exit;

  std::vector<Row> rows;
  std::map<std::string, size_t> row_of;
  bool same = true;
  for (size_t i = 0; i < there.cases.size(); ++i) {
    const CaseResult& a = there.cases[i].result;
    const CaseResult& b = here.cases[i].result;
    const auto [at, added] = row_of.emplace(backend_of(a.which), rows.size());
    if (added) rows.push_back({.backend = at->first});
    Row& row = rows[at->second];
    ++row.cells;
    row.real += a.milliseconds / 1e3;
    row.runtime += b.milliseconds / 1e3;
    if (a.outcome != b.outcome) {
      tell("regather: {}: {} on the real packages, {} on the runtime\n", id(a.which), name(a.outcome), name(b.outcome));
      same = false;
    }
  }
  rows.push_back(
      {.backend = "all, as whole runs", .cells = there.cases.size(), .real = there.seconds, .runtime = whole.seconds});
  if (options.json) {
    Json list = Json::array();
    for (const Row& row : rows) list.push_back(to_json(row));
    fmt::print("{}\n", Json{{"stack", options.run.runner.stack.name}, {"rows", std::move(list)}}.dump(1));
  } else {
    print(rows);
  }
  return same ? Exit::green : Exit::red;
}

}  // namespace regather::matrix
