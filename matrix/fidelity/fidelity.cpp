#include "matrix/fidelity/fidelity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "base/tell.h"
#include "matrix/fidelity/agreement.h"
#include "matrix/fidelity/recording.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_exceptions();
}

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;

// A disagreement that is known and proved: {"set", "id", "proof"}.
struct Exception {
  std::string set;
  std::string id;
  std::string proof;
};

std::vector<Exception> known_exceptions() {
  std::vector<Exception> list;
  for (const EmbeddedFile& file : embedded_exceptions()) {
    const auto json = nlohmann::json::parse(file.text);
    for (const auto& entry : json.at("exceptions")) {
      list.push_back({entry.at("set"), entry.at("id"), entry.at("proof")});
    }
  }
  return list;
}

struct Compared {
  std::string set;
  const RecordedCell* real = nullptr;
  std::vector<Difference> differs;
  std::string proof;  // of the exception that covers it
};

// The runtime's results of these cases, by id; an empty map when the run was interrupted.
std::map<std::string, CaseResult> run_runtime(const std::vector<Recording>& recordings,
                                              const FidelityOptions& options) {
  RunOptions run = options.run;
  run.out += "/reference";
  run.runner.stack = {};
  run.runner.request.record = false;
  run.selection = {};
  std::set<std::string> ids;
  for (const Recording& recording : recordings) {
    for (const RecordedCell& cell : recording.cells) ids.insert(id(cell.runtime_case()));
  }
  run.selection.ids.assign(ids.begin(), ids.end());
  run.quiet = true;
  std::map<std::string, CaseResult> results;
  for (DocumentCase& c : matrix::run(run).cases) results.emplace(id(c.result.which), std::move(c.result));
  return results;
}

// What the Python stack does with the plan; nothing when the run was interrupted.
std::optional<Recording> run_python(const FidelityOptions& options) {
  RunOptions run = options.run;
  run.out += "/python";
  run.runner.request.record = true;
  run.quiet = true;
  const Ran ran = matrix::run(run);
  if (ran.exit == Exit::interrupted || ran.exit == Exit::nothing) return std::nullopt;
  Recording recording;
  recording.set = options.set;
  for (const DocumentCase& c : ran.cases) {
    if (c.result.outcome != Outcome::unsupported) recording.cells.push_back(cell_of(c.result, c.line));
  }
  if (!options.record.empty()) {
    replace_file(options.record, print_recording(options.set, packages_of(options.run.runner.stack), recording.cells));
  }
  return recording;
}

Json to_json(const Compared& c) {
  Json differs = Json::array();
  for (const Difference& d : c.differs) differs.push_back({{"what", d.what}, {"real", d.real}, {"runtime", d.runtime}});
  const CaseResult& real = c.real->real;
  return {{"set", c.set},
          {"id", id(real.which)},
          {"outcome", name(real.outcome)},
          {"mechanism", real.signature ? Json(real.signature->mechanism) : Json()},
          {"agrees", c.differs.empty()},
          {"differs", std::move(differs)},
          {"exception", c.proof.empty() ? Json() : Json(c.proof)}};
}

void print_disagreement(const Compared& c) {
  fmt::print("{} [{}]{}\n", id(c.real->real.which), c.set, c.proof.empty() ? "" : " excepted: " + c.proof);
  for (const Difference& d : c.differs) fmt::print("    {}: real {}, runtime {}\n", d.what, d.real, d.runtime);
}

Exit report(const std::vector<Compared>& cells, size_t unsupported, const std::vector<Exception>& unused, bool json) {
  const auto count = [&](auto&& test) { return static_cast<size_t>(std::ranges::count_if(cells, test)); };
  const size_t agree = count([](const Compared& c) { return c.differs.empty(); });
  const size_t excepted = count([](const Compared& c) { return !c.differs.empty() && !c.proof.empty(); });
  const size_t disagree = cells.size() - agree - excepted;
  if (json) {
    Json list = Json::array();
    for (const Compared& c : cells) list.push_back(to_json(c));
    const Json whole{{"compared", cells.size()}, {"agree", agree},           {"disagree", disagree},
                     {"excepted", excepted},     {"cells", std::move(list)}, {"unsupported", unsupported}};
    fmt::print("{}\n", whole.dump(1, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const Compared& c : cells) {
      if (!c.differs.empty()) print_disagreement(c);
    }
    fmt::print("compared {}, agree {}, disagree {}, excepted {}; unsupported by the runtime {}\n", cells.size(), agree,
               disagree, excepted, unsupported);
  }
  for (const Exception& e : unused) {
    tell("regather: the exception for '{}' in '{}' excepts nothing: delete it\n", e.id, e.set);
  }
  if (cells.empty()) return Exit::nothing;
  return disagree > 0 || !unused.empty() ? Exit::red : Exit::green;
}

}  // namespace

Exit fidelity(const FidelityOptions& options) {
  std::vector<Recording> recordings;
  if (options.recorded) {
    recordings = known_recordings();
  } else if (auto recording = run_python(options)) {
    recordings.push_back(std::move(*recording));
  } else {
    return Exit::interrupted;
  }
  const std::map<std::string, CaseResult> runtime = run_runtime(recordings, options);
  if (runtime.empty()) return Exit::interrupted;

  std::vector<Exception> exceptions = options.recorded ? known_exceptions() : std::vector<Exception>{};
  std::vector<Exception> unused = exceptions;
  std::vector<Compared> cells;
  size_t unsupported = 0;
  for (const Recording& recording : recordings) {
    for (const RecordedCell& cell : recording.cells) {
      const CaseResult& ours = runtime.at(id(cell.runtime_case()));
      if (ours.outcome == Outcome::unsupported) {
        ++unsupported;
        continue;
      }
      Compared compared{.set = recording.set, .real = &cell, .differs = differences(cell, ours), .proof = {}};
      const auto covers = [&](const Exception& e) { return e.set == compared.set && e.id == id(cell.real.which); };
      if (const auto at = std::ranges::find_if(exceptions, covers);
          at != exceptions.end() && !compared.differs.empty()) {
        compared.proof = at->proof;
        std::erase_if(unused, covers);
      }
      cells.push_back(std::move(compared));
    }
  }
  return report(cells, unsupported, unused, options.json);
}

}  // namespace regather::matrix
