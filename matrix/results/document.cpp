#include "matrix/results/document.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;

std::string print(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string print_case(const DocumentCase& c) {
  std::string line = c.line.substr(0, c.line.rfind('}'));
  if (c.attempts.size() > 1) {
    Json outcomes = Json::array();
    for (const Outcome outcome : c.attempts) outcomes.push_back(name(outcome));
    line += ",\"attempts\":" + print(outcomes);
  }
  if (c.verdict) line += fmt::format(",\"verdict\":\"{}\"", name(*c.verdict));
  return line + "}";
}

}  // namespace

void make_folder(const std::string& out) {
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error) {
    throw UsageError(
        fmt::format("cannot make the output folder '{}': {}; choose another with --out", out, error.message()));
  }
}

std::string print_document(const Document& document, const Json& environment) {
  std::map<Outcome, int> counts;
  for (const DocumentCase& c : document.cases) ++counts[c.result.outcome];
  Json totals = Json::object();
  for (const auto& [outcome, count] : counts) totals[name(outcome)] = count;
  std::map<Verdict, size_t> verdicts;
  for (const DocumentCase& c : document.cases) {
    if (c.verdict) ++verdicts[*c.verdict];
  }
  if (document.absent > 0) verdicts[Verdict::absent] += document.absent;
  for (const auto& [verdict, count] : verdicts) totals["verdict"][name(verdict)] = count;
  Json plan{{"definition", document.definition},
            {"hash", document.hash},
            {"cases", document.cases.size() + document.unreported}};
  if (!document.shard.empty()) {
    plan["shard"] = document.shard;
    plan["selected"] = document.selected;
  }

  std::string text = "{\n\"schema\":1,\n";
  text += "\"environment\":" + print(environment) + ",\n";
  text += "\"plan\":" + print(plan) + ",\n";
  text += "\"totals\":" + print(totals) + ",\n";
  text += "\"cases\":[";
  const char* separator = "\n";
  for (const DocumentCase& c : document.cases) {
    text += separator + print_case(c);
    separator = ",\n";
  }
  text += fmt::format("\n],\n\"seconds\":{:.3f}\n}}\n", document.seconds);
  return text;
}

}  // namespace regather::matrix
