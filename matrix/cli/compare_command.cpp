#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/tell.h"
#include "matrix/cli/commands.h"
#include "matrix/judge/compare.h"
#include "matrix/judge/gate.h"
#include "matrix/judge/load.h"

namespace regather::cli {
namespace {

using matrix::Exit;

struct CompareText {
  std::string before;
  std::string now;
  std::string gate = "regression,absent";
  bool json = false;
};

Exit compare(const CompareText& text) {
  const auto gate = matrix::parse_gate(text.gate);
  const matrix::Comparison comparison =
      matrix::compare(matrix::load_document(text.before), matrix::load_document(text.now));
  if (text.json) {
    fmt::print("{}\n",
               matrix::to_json(comparison, gate).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    fmt::print("{}", matrix::print(comparison));
  }
  const Exit exit = matrix::judge(comparison, gate);
  if (exit == Exit::nothing) tell("regather: nothing was compared: no case stands in both documents\n");
  return exit;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("compare", "What has become of each case between two documents");
  const auto text = std::make_shared<CompareText>();
  command->add_option("old", text->before, "A results.json")->required();
  command->add_option("new", text->now, "A later one")->required();
  command
      ->add_option("--gate", text->gate,
                   "What makes it red, joined by commas: regression, changed, fixed, new, absent, flaky, xpass; cases "
                   "that are missing always do")
      ->type_name("KINDS")
      ->capture_default_str();
  command->add_flag("--json", text->json, "As one JSON object");
  command->callback([&action, text] { action = [text] { return compare(*text); }; });
}

}  // namespace regather::cli
