#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "case/fixes.h"
#include "matrix/cli/commands.h"
#include "matrix/cli/run_options.h"
#include "repro/register.h"
#include "repro/reproduce.h"

namespace regather::cli {
namespace {

using Json = nlohmann::ordered_json;
using matrix::Exit;

constexpr auto kReplace = Json::error_handler_t::replace;

struct ReproText {
  std::string id;
  std::string fix;
  std::string model;
  bool json = false;
};

Json to_json(const repro::Entry& entry) {
  Json versions = Json::array();
  for (const repro::VersionClaim& claim : entry.versions) {
    versions.push_back({{"package", claim.package},
                        {"range", claim.range},
                        {"cause", claim.cause},
                        {"source", claim.measured ? "measured" : "cited"}});
  }
  Json workarounds = Json::array();
  for (const repro::Workaround& w : entry.workarounds) workarounds.push_back({{"what", w.what}, {"price", w.price}});
  return {{"id", entry.id},
          {"aliases", entry.aliases},
          {"title", entry.title},
          {"status", repro::name(entry.status)},
          {"why", entry.why},
          {"mechanisms", entry.mechanisms},
          {"versions", versions},
          {"symptom", entry.symptom},
          {"upstream", entry.upstream},
          {"workarounds", workarounds},
          {"references", entry.references}};
}

Exit list_entries(bool as_json) {
  Json list = Json::array();
  for (const repro::Entry& entry : repro::known_entries()) {
    if (as_json) {
      list.push_back(to_json(entry));
    } else {
      fmt::print("{:<30} {:<10} {}\n", entry.id, repro::name(entry.status), entry.title);
    }
  }
  if (as_json) fmt::print("{}\n", list.dump(1));
  return Exit::green;
}

Exit run(const ReproText& text) {
  const repro::ReproduceOptions options{
      .fixes = text.fix.empty() ? std::nullopt : std::optional<Fixes>(parse_fixes(text.fix)),
      .model = model_folder(text.model),
      .jobs = default_jobs()};
  if (text.id == "list") {
    if (options.fixes || !text.model.empty()) {
      throw UsageError("repro list runs nothing: leave out --fix and --model");
    }
    return list_entries(text.json);
  }
  std::vector<const repro::Entry*> entries;
  if (text.id == "all") {
    for (const repro::Entry& entry : repro::known_entries()) entries.push_back(&entry);
  } else {
    entries.push_back(&repro::find_entry(text.id));
  }
  const auto reproductions = repro::reproduce(entries, options);
  if (!reproductions) return Exit::interrupted;

  Json list = Json::array();
  for (const repro::Reproduction& r : *reproductions) {
    if (text.json) {
      list.push_back(repro::to_json(r));
    } else {
      fmt::print("{}", repro::print(r));
    }
  }
  if (text.json) fmt::print("{}\n", (text.id == "all" ? list : list.front()).dump(-1, ' ', false, kReplace));
  if (std::ranges::any_of(*reproductions, &repro::Reproduction::contradicted)) return Exit::red;
  return std::ranges::any_of(*reproductions, &repro::Reproduction::supported) ? Exit::green : Exit::nothing;
}

}  // namespace

void add_repro(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("repro", "Show a public bug without and with its fix");
  const auto text = std::make_shared<ReproText>();
  command->add_option("id", text->id, "An issue as in deepspeed#8130; all; list")->required();
  command->add_option("--fix", text->fix, "These fixes, joined by +, instead of the issue's own")->type_name("NAMES");
  command->add_option("--model", text->model, "A Hugging Face folder instead of the card model")->type_name("DIR");
  command->add_flag("--json", text->json, "As JSON; a list for all");
  command->callback([&action, text] { action = [text] { return run(*text); }; });
}

}  // namespace regather::cli
