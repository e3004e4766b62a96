#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/tell.h"
#include "case/support.h"
#include "matrix/cli/commands.h"
#include "matrix/explain.h"

namespace regather::cli {
namespace {

using matrix::Exit;

Exit explain(const std::string& text, bool as_json) {
  const Case c = parse_id(text);
  if (const auto why = unsupported(c)) {
    tell("regather: nothing to explain: '{}' is unsupported: {}\n", text, *why);
    return Exit::nothing;
  }
  const auto explanation = matrix::explain(c);
  if (!explanation) return Exit::interrupted;
  if (as_json) {
    fmt::print("{}\n",
               matrix::to_json(*explanation).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    fmt::print("{}", matrix::print(*explanation));
  }
  return explanation->sets.empty() ? Exit::red : Exit::green;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("explain", "Why a case fails, and the smallest sets of fixes with which it passes");
  const auto text = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("case", *text, "Its id, as in zero3/sft/fix=none")->required()->type_name("CASE");
  command->add_flag("--json", *json, "As one JSON object");
  command->callback([&action, text, json] { action = [text, json] { return explain(*text, *json); }; });
}

}  // namespace regather::cli
