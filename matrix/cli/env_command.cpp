#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "matrix/cli/commands.h"
#include "matrix/results/environment.h"

namespace regather::cli {

void add_env(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("env", "What this program was built with and runs on");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As one JSON object");
  command->callback([&action, json] {
    action = [json] {
      const nlohmann::ordered_json environment = matrix::environment("reference");
      if (*json) {
        fmt::print("{}\n", environment.dump(2));
        return matrix::Exit::green;
      }
      for (const auto& [key, value] : environment.items()) {
        fmt::print("{:<13} {}\n", key,
                   value.is_null()     ? "unknown"
                   : value.is_string() ? value.get<std::string>()
                                       : value.dump());
      }
      return matrix::Exit::green;
    };
  });
}

}  // namespace regather::cli
