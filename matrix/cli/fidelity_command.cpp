#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "matrix/cli/commands.h"
#include "matrix/cli/run_options.h"
#include "matrix/fidelity/fidelity.h"

namespace regather::cli {
namespace {

void check_writable(const std::string& file) {
  if (file.empty()) return;
  const std::string folder = std::filesystem::absolute(file).parent_path().string();
  if (::access(folder.c_str(), W_OK) != 0) {
    throw UsageError(fmt::format("--record '{}': cannot write in '{}': {}; expected a file in a folder that is there",
                                 file, folder, std::strerror(errno)));
  }
}

struct FidelityText {
  RunText run;
  matrix::FidelityOptions options;

  matrix::FidelityOptions parse() const {
    matrix::FidelityOptions parsed = options;
    if (options.recorded && run.stack != "reference") {
      throw UsageError("--recorded and --stack exclude each other: the recordings stand for the Python stack");
    }
    if (!options.recorded && run.stack == "reference") {
      throw UsageError("fidelity compares the runtime with real packages: expected --recorded, or --stack python:ENV");
    }
    if (options.recorded && !options.record.empty()) {
      throw UsageError("--record writes what a Python stack did: expected --stack python:ENV with it");
    }
    check_writable(options.record);  // before a run of many minutes, not after it
    parsed.run = run.parse();
    return parsed;
  }
};

}  // namespace

void add_fidelity(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("fidelity", "Whether the runtime does what the real packages do, cell by cell");
  const auto text = std::make_shared<FidelityText>();
  text->run.selection.selection.definition = "fidelity";
  text->run.options.out = "out/fidelity";
  text->options.set = "local";
  add_selection(*command, text->run.selection);
  add_running(*command, text->run);
  command->add_flag("--recorded", text->options.recorded,
                    "Against what was recorded of the real packages, without Python");
  command->add_option("--record", text->options.record, "Write what the Python stack did as a recording")
      ->type_name("FILE");
  command->add_option("--set", text->options.set, "The recording's name")->capture_default_str();
  command->add_flag("--json", text->options.json, "As one JSON object");
  command->callback([&action, command, text] {
    note_given(*command, text->run);
    action = [text] { return matrix::fidelity(text->parse()); };
  });
}

}  // namespace regather::cli
