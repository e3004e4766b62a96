#include "compare.h"

#include <fmt/format.h>

#include <fstream>
#include <regex>
#include <stdexcept>

namespace regather::tables {
namespace {

void add(ById& rows, const Json& row) {
  if (!rows.emplace(row.at("id"), row).second) throw std::runtime_error("twice in one table: " + row.dump());
}

std::string value_or(const Json& object, const char* key, const char* otherwise) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? otherwise : at->get<std::string>();
}

std::optional<std::string> text_disagreement(const Json& row, const Json& signature) {
  if (row.at("text").is_null()) return std::nullopt;
  const std::string whose = row.at("text_of");
  const std::string want = mask_rows(row.at("text"));
  std::string got = mask_rows(value_or(signature, whose == "python" ? "upstream" : "text", ""));
  if (whose == "python" && got.empty()) return std::nullopt;  // the result does not say what upstream prints
  if (whose == "check") got = got.substr(0, got.find('\n'));
  if (got == want) return std::nullopt;
  return fmt::format("text '{}', expected '{}'", got, want);
}

bool holds(const Json& also, const Json& expected) {
  for (const Json& departure : also) {
    const Json& s = departure.at("signature");
    const std::string text = value_or(s, "text", "");
    if (s.at("phase") == expected.at("phase") && s.at("step") == expected.at("step") &&
        text.starts_with(expected.at("text").get<std::string>())) {
      return true;
    }
  }
  return false;
}

}  // namespace

ById read_table(const std::filesystem::path& file) {
  const Json table = Json::parse(std::ifstream(file));
  ById rows;
  if (table.contains("rules")) {
    for (const Json& rule : table.at("rules")) {
      for (const Json& row : rule.at("rows")) add(rows, row);
    }
  } else {
    for (const Json& row : table.at("rows")) add(rows, row);
  }
  return rows;
}

ById read_results(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("no results at " + file.string());
  ById results;
  for (std::string line; std::getline(in, line);) {
    Json result = Json::parse(line);
    results.insert_or_assign(result.at("id"), result);
  }
  return results;
}

std::optional<std::string> disagreement(const Json& row, const Json& result) {
  const std::string id = row.at("id");
  if (row.at("outcome") != result.at("outcome")) {
    return fmt::format("{}: {}, expected {}; {}", id, result.at("outcome").dump(), row.at("outcome").dump(),
                       result.at("signature").dump());
  }
  if (row.at("outcome") == "pass") return std::nullopt;
  const Json& signature = result.at("signature");
  if (signature.is_null()) return fmt::format("{}: fails without a signature", id);
  for (const char* part : {"phase", "step"}) {
    if (!row.at(part).is_null() && row.at(part) != signature.at(part)) {
      return fmt::format("{}: {} {}, expected {}; {}", id, part, signature.at(part).dump(), row.at(part).dump(),
                         signature.dump());
    }
  }
  if (const auto text = text_disagreement(row, signature)) return fmt::format("{}: {}", id, *text);
  if (row.contains("also")) {
    for (const Json& later : row.at("also")) {
      if (!holds(result.at("also"), later)) return fmt::format("{}: 'also' lacks {}", id, later.dump());
    }
  }
  return std::nullopt;
}

std::string mask_rows(const std::string& text) {
  static const std::regex rows(R"(got input \(\d+\), mat \(\d+x)");
  return std::regex_replace(text, rows, "got input (N), mat (Nx");
}

}  // namespace regather::tables
