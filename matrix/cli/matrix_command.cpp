#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/tell.h"
#include "case/fault.h"
#include "case/support.h"
#include "matrix/cli/commands.h"
#include "matrix/cli/reporting.h"
#include "matrix/cli/run_options.h"
#include "matrix/merge.h"
#include "matrix/run.h"
#include "matrix/runner/follow.h"

namespace regather::cli {
namespace {

using matrix::Exit;
using matrix::RunOptions;
using matrix::Selection;

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

Exit bisect_versions(const RunOptions& options, const std::string& package) {
  if (!options.runner.stack.python() || options.selection.ids.size() != 1) {
    throw UsageError(
        fmt::format("--bisect-versions '{}': expected it with --stack python:ENV and one --case", package));
  }
  become_peer("bisection",
              {"--stack", options.runner.stack.name, "--package", package, "--case", options.selection.ids.front()});
}

// With the page beside the document, where the run has written one.
Exit run_and_show(const RunOptions& options) {
  const matrix::Ran ran = matrix::run(options);
  if (ran.cases.empty()) return ran.exit;
  write_page(options.out, options.rules.baseline);
  if (!options.quiet) tell("page {}/report.html\n", options.out);
  return ran.exit;
}

// Alone, or as one rank among several.
Exit run_cases(const RunOptions& options) {
  if (!options.ranks || options.dry_run) return run_and_show(options);
  if (options.ranks->rank > 0) return matrix::follow(*options.ranks);
  matrix::Lead lead(*options.ranks);
  const Exit exit = run_and_show(options);
  lead.end(exit);
  return exit;
}

}  // namespace

void add_matrix(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("matrix", "Run the cases of a definition, or list them");
  command->require_subcommand(1);

  CLI::App* run = command->add_subcommand("run", "Run cases; writes cases.jsonl and results.json");
  const auto text = std::make_shared<RunText>();
  const auto package = std::make_shared<std::string>();
  add_run(*run, *text);
  run->add_option("--bisect-versions", *package,
                  "On a Python stack, with one --case: the first release of this package in which it changed")
      ->type_name("PACKAGE");
  run->callback([&action, run, text, package] {
    note_given(*run, *text);
    action = [text, package] {
      const RunOptions options = text->parse();
      return package->empty() ? run_cases(options) : bisect_versions(options, *package);
    };
  });

  CLI::App* merge = command->add_subcommand("merge", "Put the documents of all shards of a run together");
  const auto files = std::make_shared<std::vector<std::string>>();
  const auto out = std::make_shared<std::string>("out");
  const auto rules = std::make_shared<RulesText>();
  merge->add_option("document", *files, "A results.json of each shard")->required();
  merge->add_option("--out", *out, "Output folder")->capture_default_str();
  add_rules(*merge, *rules);
  merge->callback([&action, files, out, rules] {
    action = [=] {
      const matrix::Rules parsed = rules->parse();
      const Exit exit = matrix::merge_files(*files, *out, parsed);
      write_page(*out, parsed.baseline);
      return exit;
    };
  });

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
