#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "matrix/bench/matrix_speed.h"
#include "matrix/cli/commands.h"
#include "matrix/cli/run_options.h"
#include "matrix/fidelity/speed.h"
#include "repro/diagnose/speed.h"

namespace regather::cli {
namespace {

void add_bench_matrix(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("matrix", "The card's seconds, what a case costs, and how cost grows");
  const auto text = std::make_shared<RunText>();
  const auto json = std::make_shared<bool>(false);
  text->options.out = "out/bench";
  text->options.runner.jobs = default_jobs();
  command->add_option("--out", text->options.out, "Where the card's results go")->capture_default_str();
  command->add_flag("--json", *json, "As one JSON object");
  command->callback([&action, text, json] {
    action = [text, json] { return matrix::measure_matrix({.run = text->parse(), .json = *json}); };
  });
}

void add_bench_stack(CLI::App& bench, Action& action) {
  CLI::App* stack = bench.add_subcommand("stack", "The same cells on real packages and on the runtime");
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

void add_bench_diagnose(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("diagnose", "A long log's megabytes a second, and the memory that takes");
  const auto options = std::make_shared<repro::SpeedOptions>();
  options->out = "out/bench";
  command->add_option("--out", options->out, "Where the log is made")->capture_default_str();
  command->add_option("--mebibytes", options->mebibytes, "Its size")->type_name("N")->capture_default_str();
  command->add_flag("--json", options->json, "As one JSON object");
  command->callback([&action, options] { action = [options] { return repro::measure_diagnose(*options); }; });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("bench", "How fast regather is, measured here and now");
  command->require_subcommand(1);
  add_bench_matrix(*command, action);
  add_bench_stack(*command, action);
  add_bench_diagnose(*command, action);
}

}  // namespace regather::cli
