#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "case/fault.h"
#include "matrix/cli/commands.h"

namespace regather::cli {
namespace {

matrix::Exit list_faults(bool as_json) {
  if (as_json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const FaultInfo& fault : known_faults()) {
      list.push_back({{"name", fault.name}, {"breaks", fault.breaks}, {"red", fault.red}});
    }
    fmt::print("{}\n", list.dump(2));
    return matrix::Exit::green;
  }
  for (const FaultInfo& fault : known_faults()) {
    fmt::print("{}: {}\n", fault.name, fault.breaks);
    for (const std::string& red : fault.red) fmt::print("    turns red {}\n", red);
  }
  return matrix::Exit::green;
}

}  // namespace

void add_fault(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("fault", "The seeded faults that show that every check can go red");
  command->require_subcommand(1);
  CLI::App* list = command->add_subcommand("list", "Each fault, what it breaks and the cases that it turns red");
  const auto json = std::make_shared<bool>(false);
  list->add_flag("--json", *json, "As a JSON list of {name, breaks, red}");
  list->callback([&action, json] { action = [json] { return list_faults(*json); }; });
}

}  // namespace regather::cli
