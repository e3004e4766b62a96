#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "matrix/cli/commands.h"
#include "matrix/cli/run_options.h"
#include "matrix/fidelity/speed.h"

namespace regather::cli {

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("bench", "How fast regather is, measured here and now");
  command->require_subcommand(1);

  CLI::App* stack = command->add_subcommand("stack", "The same cells on real packages and on the runtime");
  const auto text = std::make_shared<RunText>();
  const auto json = std::make_shared<bool>(false);
  text->selection.selection.definition = "speed";
  text->options.out = "out/speed";
  add_selection(*stack, text->selection);
  add_running(*stack, *text);
  stack->add_flag("--json", *json, "As one JSON object");
  stack->callback([&action, stack, text, json] {
    note_given(*stack, *text);
    action = [text, json] {
      if (text->stack == "reference") {
        throw UsageError("bench stack compares the runtime with real packages: expected --stack python:ENV");
      }
      return matrix::compare_speed({.run = text->parse(), .jobs = text->options.runner.jobs, .json = *json});
    };
  });
}

}  // namespace regather::cli
