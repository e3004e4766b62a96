#include "matrix/plan/definition.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "case/fixes.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_definitions();
}

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

constexpr size_t kLargestFile = 1 << 20;

FixMode parse_fix_mode(std::string_view text) {
  if (text == "off") return FixMode::off;
  if (text == "on") return FixMode::on;
  if (text == "each") return FixMode::each;
  throw UsageError(fmt::format("'{}' is not a way to choose fixes: expected off, on or each", text));
}

std::vector<std::string> strings(const Json& list, std::string_view key) {
  if (!list.is_array() || list.empty()) throw UsageError(fmt::format("'{}': expected a list of strings", key));
  std::vector<std::string> result;
  for (const Json& entry : list) {
    if (!entry.is_string()) throw UsageError(fmt::format("'{}': expected strings in the list", key));
    result.push_back(entry.get<std::string>());
    if (std::ranges::count(result, result.back()) > 1) {
      throw UsageError(fmt::format("'{}': '{}' stands twice", key, result.back()));
    }
  }
  return result;
}

std::vector<FixMode> fix_modes(const Json& list) {
  std::vector<FixMode> modes;
  for (const std::string& mode : strings(list, "fixes")) modes.push_back(parse_fix_mode(mode));
  return modes;
}

CaseSet parse_set(const Json& set, const std::vector<FixMode>& fixes) {
  if (!set.is_object()) throw UsageError("'sets': expected objects in the list");
  CaseSet result{.axes = {}, .fixes = fixes, .fix = {}};
  for (const auto& [key, list] : set.items()) {
    if (key == "fixes") {
      result.fixes = fix_modes(list);
      continue;
    }
    if (key == "fix") {
      for (const std::string& names : strings(list, key)) result.fix.push_back(parse_fixes(names));
      continue;
    }
    Case scratch;
    for (const std::string& value : strings(list, key)) set_axis(scratch, key, value);
  }
  for (const Axis& axis : axes()) {
    if (set.contains(axis.name)) result.axes.emplace_back(axis.name, strings(set[axis.name], axis.name));
  }
  if (result.fixes.empty() && result.fix.empty())
    throw UsageError("'fixes' is absent: expected [\"off\", \"on\"], or a list in each set");
  return result;
}

}  // namespace

std::vector<FixMode> parse_fix_modes(std::string_view text) {
  std::vector<FixMode> modes;
  for (size_t begin = 0;;) {
    const size_t end = text.find(',', begin);
    const FixMode mode = parse_fix_mode(text.substr(begin, end - begin));
    if (std::ranges::find(modes, mode) == modes.end()) modes.push_back(mode);
    if (end == std::string_view::npos) return modes;
    begin = end + 1;
  }
}

Definition parse_definition(const std::string& name, std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) throw UsageError("expected an object with schema, fixes and sets");
    for (const auto& [key, value] : json.items()) {
      if (key != "schema" && key != "about" && key != "fixes" && key != "sets") {
        throw UsageError(fmt::format("'{}' is not a member: expected schema, about, fixes, sets", key));
      }
    }
    if (json.value("schema", Json()) != 1) throw UsageError("'schema': expected 1");
    Definition definition{.name = name, .about = {}, .sets = {}};
    if (const auto about = json.find("about"); about != json.end()) {
      if (!about->is_string()) throw UsageError("'about': expected a string");
      definition.about = about->get<std::string>();
    }
    const std::vector<FixMode> fixes = json.contains("fixes") ? fix_modes(json["fixes"]) : std::vector<FixMode>{};
    const auto sets = json.find("sets");
    if (sets == json.end() || !sets->is_array() || sets->empty()) {
      throw UsageError("'sets': expected a list of at least one set");
    }
    for (const Json& set : *sets) definition.sets.push_back(parse_set(set, fixes));
    return definition;
  } catch (const Json::exception& e) {
    throw UsageError(fmt::format("definition '{}': not JSON: {}", name, e.what()));
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("definition '{}': {}", name, e.what()));
  }
}

Definition load_definition(const std::string& name_or_path) {
  std::vector<std::string_view> names;
  for (const EmbeddedFile& file : embedded_definitions()) {
    if (file.name == name_or_path) return parse_definition(name_or_path, file.text);
    names.push_back(file.name);
  }
  if (name_or_path.find_first_of("/.") == std::string::npos) {
    throw UsageError(fmt::format("'{}' is not a definition: expected one of {}, or the path of a JSON file",
                                 name_or_path, fmt::join(names, ", ")));
  }
  return parse_definition(name_or_path, read_file(name_or_path, kLargestFile));
}

std::vector<std::pair<std::string, std::string>> known_definitions() {
  std::vector<std::pair<std::string, std::string>> list;
  for (const EmbeddedFile& file : embedded_definitions()) {
    const std::string name(file.name);
    list.emplace_back(name, parse_definition(name, file.text).about);
  }
  return list;
}

}  // namespace regather::matrix
