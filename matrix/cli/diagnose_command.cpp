#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "matrix/cli/commands.h"
#include "repro/diagnose/diagnose.h"
#include "repro/diagnose/report.h"
#include "repro/register.h"

namespace regather::cli {
namespace {

using matrix::Exit;

struct DiagnoseText {
  repro::DiagnoseOptions options;
  bool json = false;
};

Exit diagnose(const DiagnoseText& text) {
  const repro::Findings findings = repro::read_logs(text.options);
  const repro::Diagnosis diagnosis = repro::conclude(repro::knowledge(), repro::known_entries(), findings);
  if (text.json) {
    fmt::print("{}\n", repro::to_json(repro::knowledge(), diagnosis, findings)
                           .dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    fmt::print("{}", repro::print(repro::knowledge(), diagnosis));
  }
  return diagnosis.unknown ? Exit::red : Exit::green;
}

}  // namespace

void add_diagnose(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("diagnose", "Recognise a public bug in logs of a run");
  const auto text = std::make_shared<DiagnoseText>();
  command->add_option("log", text->options.logs, "Logs, text or gzip, of any size; - is standard input")->required();
  command->add_option("--config", text->options.configs, "A config of the run, for what it says of it; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_flag("--json", text->json, "As one JSON object");
  command->callback([&action, text] { action = [text] { return diagnose(*text); }; });
}

}  // namespace regather::cli
