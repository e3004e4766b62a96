#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "matrix/cli/commands.h"
#include "repro/check/check.h"

namespace regather::cli {
namespace {

using matrix::Exit;

struct CheckText {
  std::vector<std::string> files;
  std::string results;
  bool json = false;
};

Exit run(const CheckText& text) {
  std::vector<check::File> files;
  for (const std::string& name : text.files) {
    files.push_back(check::parse_file(name, read_file(name, check::kLargestFile)));
  }
  const auto measured =
      text.results.empty() ? check::measured_by_recordings() : std::vector{check::measured_by_document(text.results)};
  const check::Checked checked = check::check(std::move(files), measured);
  if (text.json) {
    fmt::print("{}\n", check::to_json(checked).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    fmt::print("{}", check::print(checked));
  }
  if (checked.problem()) return Exit::red;
  return checked.verdict == check::Verdict::works ? Exit::green : Exit::nothing;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("check", "What configuration files will do, answered from measured results");
  const auto text = std::make_shared<CheckText>();
  command
      ->add_option("files", text->files,
                   "ds_config.json, accelerate's and the trainer's configuration, adapter_config.json, config.json, a "
                   "launch script, pip freeze: told by their content")
      ->required()
      ->type_name("FILE");
  command->add_option("--results", text->results, "A results.json that answers in the recordings' place")
      ->type_name("FILE");
  command->add_flag("--json", text->json, "As one JSON object");
  command->callback([&action, text] { action = [text] { return run(*text); }; });
}

}  // namespace regather::cli
