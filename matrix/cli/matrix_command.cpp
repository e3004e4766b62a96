#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/error.h"
#include "case/fault.h"
#include "case/support.h"
#include "matrix/cli/commands.h"
#include "matrix/run.h"

namespace regather::cli {
namespace {

using matrix::Exit;
using matrix::RunOptions;
using matrix::Selection;

// The options of a selection as they stand on the command line, read by both commands.
struct SelectionText {
  Selection selection;
  std::string fixes;
  std::string shard;

  Selection parse() const {
    Selection parsed = selection;
    if (!fixes.empty()) parsed.fixes = matrix::parse_fix_modes(fixes);
    if (!shard.empty()) parsed.shard = matrix::parse_shard(shard);
    return parsed;
  }
};

void add_selection(CLI::App& command, SelectionText& text) {
  std::string definitions = "A definition or the path of one in JSON";
  for (const auto& [name, about] : matrix::known_definitions()) definitions += fmt::format("\n{}: {}", name, about);
  command.add_option("definition", text.selection.definition, definitions)->capture_default_str();
  CLI::Option* fixes = command.add_option(
      "--fixes", text.fixes, "Out of off (none), on (the recommended set), each (that set less one fix); joined by ,");
  CLI::Option* filter = command.add_option("--filter", text.selection.filter,
                                           "As in 'backend=zero3 & frozen in (norms,lora) & !fix=none'; also |, !=, "
                                           "parentheses and 'fix has NAME'");
  CLI::Option* part = command.add_option("-k", text.selection.text, "Cases whose id holds this text");
  command.add_option("--case", text.selection.ids, "Exactly this case, whatever the definition; may be repeated")
      ->type_name("ID")
      ->allow_extra_args(false)
      ->excludes(fixes)
      ->excludes(filter)
      ->excludes(part);
  command.add_option("--shard", text.shard, "The K-th of N equal parts")->type_name("K/N");
}

Exit list_cases(const Selection& selection, const std::string& format) {
  const matrix::Plan plan = matrix::make_plan(selection);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Case& c : plan.cases) {
    const std::optional<std::string> why = unsupported(c);
    if (format == "text") {
      fmt::print("{}{}\n", id(c), why ? "\tunsupported: " + *why : "");
      continue;
    }
    nlohmann::ordered_json axes;
    for (const AxisValue& v : axis_values(c)) axes[v.axis] = v.value;
    list.push_back({{"id", id(c)},
                    {"axes", std::move(axes)},
                    {"fixes", c.fixes},
                    {"supported", !why},
                    {"reason", why ? nlohmann::ordered_json(*why) : nlohmann::ordered_json()}});
  }
  if (format == "json") fmt::print("{}\n", list.dump(1));
  return plan.cases.empty() ? Exit::nothing : Exit::green;
}

// The options of a run that are more than a number or a name.
struct RunText {
  SelectionText selection;
  RunOptions options;
  std::string launcher = "auto";
  std::string stack = "reference";
  std::string format = "text";

  RunOptions parse() const {
    RunOptions parsed = options;
    matrix::Request& request = parsed.runner.request;
    parsed.selection = selection.parse();
    if (request.device != "cpu") {
      throw UsageError(fmt::format("--device '{}': the reference runtime runs on cpu; expected cpu", request.device));
    }
    if (launcher != "auto" && launcher != "threads" && launcher != "processes") {
      throw UsageError(
          fmt::format("--launcher '{}': expected auto (threads), threads or processes, all on this host", launcher));
    }
    request.launcher = launcher == "processes" ? "processes" : "threads";
    if (stack != "reference") {
      throw UsageError(fmt::format("--stack '{}': cases run on the C++ runtime; expected reference", stack));
    }
    parse_fault(request.fault);
    if (!request.model.empty()) {
      // The worker opens it, and lines of another model must not be taken for this one's.
      std::error_code error;
      request.model = std::filesystem::canonical(request.model, error).string();
      if (error || !std::filesystem::is_directory(request.model)) {
        throw UsageError(fmt::format("--model '{}': expected a folder with config.json and model.safetensors",
                                     options.runner.request.model));
      }
    }
    parsed.lines = format == "jsonl";
    return parsed;
  }
};

void add_run(CLI::App& command, RunText& text) {
  add_selection(command, text.selection);
  RunOptions& options = text.options;
  matrix::Request& request = options.runner.request;
  options.runner.jobs = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 2U));
  command.add_option("--out", options.out, "Output folder")->capture_default_str();
  command.add_flag("--resume", options.resume, "Go on from the lines in the output folder");
  command.add_option("-j,--jobs", options.runner.jobs, "Workers at a time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--timeout", request.timeout, "Seconds for a case, after which it is a hang")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  command.add_option("--retries", options.policy.retries, "How often a red case is tried again")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command.add_option("--repeat", options.policy.repeat, "How often every case runs; one red run makes it red")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command.add_flag("--shuffle", options.shuffle, "Run in an order drawn from --seed");
  command.add_option("--seed", request.seed, "Of the weights, the batches and the order")->capture_default_str();
  command.add_flag("-x,--exitfirst", options.stop_at_red, "Stop at the first red case");
  command.add_flag("--dry-run", options.dry_run, "Print the ids that would run");
  command.add_option("--device", request.device, "Where cases run: cpu")->capture_default_str();
  command.add_option("--launcher", text.launcher, "Ranks as threads or processes; auto: threads")
      ->capture_default_str();
  command.add_option("--stack", text.stack, "What runs the cases: reference")->capture_default_str();
  command.add_option("--model", request.model, "A Hugging Face folder instead of the card model")->type_name("DIR");
  command.add_option("--fault", request.fault, "Break the runtime in one place (regather fault list)")
      ->type_name("NAME");
  command.add_option("--format", text.format, "jsonl: each result line on standard output too")
      ->check(CLI::IsMember({"text", "jsonl"}))
      ->capture_default_str();
}

}  // namespace

void add_matrix(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("matrix", "Run the cases of a definition, or list them");
  command->require_subcommand(1);

  CLI::App* run = command->add_subcommand("run", "Run cases; writes cases.jsonl and results.json");
  const auto text = std::make_shared<RunText>();
  add_run(*run, *text);
  run->callback([&action, text] { action = [text] { return matrix::run_matrix(text->parse()); }; });

  CLI::App* list = command->add_subcommand("list", "List cases, and why those that are unsupported are");
  const auto selection = std::make_shared<SelectionText>();
  const auto format = std::make_shared<std::string>("text");
  add_selection(*list, *selection);
  list->add_option("--format", *format, "text: an id a line; json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  list->callback([&action, selection, format] { action = [=] { return list_cases(selection->parse(), *format); }; });
}

}  // namespace regather::cli
