#include "matrix/judge/conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "matrix/judge/members.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

// 2.11.0+cpu: {2, 11}. Zeros at the end are dropped, so that 2.11 and 2.11.0 are one version.
std::vector<int> numbers_of(std::string_view text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  for (;;) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0) break;
    numbers.push_back(number);
    if (next == end || *next != '.') break;
    at = next + 1;
  }
  if (numbers.empty()) throw UsageError(fmt::format("'{}' is not a version: expected numbers as in 2.11.0", text));
  while (numbers.size() > 1 && numbers.back() == 0) numbers.pop_back();
  return numbers;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

template <class Range, class Value>
bool empty_or_holds(const Range& range, const Value& value) {
  return range.empty() || std::ranges::find(range, value) != range.end();
}

std::vector<int> parse_world(const Json& list) {
  if (!list.is_array()) throw UsageError("'when.world': expected a list of numbers of ranks, as in [2, 4]");
  std::vector<int> world;
  for (const Json& entry : list) {
    Case scratch;
    set_axis(scratch, "world", entry.dump(-1, ' ', false, Json::error_handler_t::replace));
    world.push_back(scratch.world);
  }
  return world;
}

}  // namespace

Setting setting_of(const nlohmann::ordered_json& environment, const std::string& device, const std::string& stack) {
  Setting setting{.versions = {}, .device = device, .stack = stack};
  for (const char* name : {"regather", "torch"}) {
    const auto at = environment.find(name);
    if (at != environment.end() && at->is_string()) setting.versions[name] = at->get<std::string>();
  }
  if (const auto packages = environment.find("packages"); packages != environment.end() && packages->is_object()) {
    for (const auto& [name, version] : packages->items()) {
      if (version.is_string()) setting.versions[name] = version.get<std::string>();
    }
  }
  return setting;
}

VersionRange::VersionRange(std::string_view text) {
  for (size_t begin = 0;;) {
    const size_t end = text.find(',', begin);
    std::string_view part = trimmed(text.substr(begin, end - begin));
    const size_t digit = part.find_first_of("0123456789");
    const std::string relation(trimmed(part.substr(0, digit)));
    const bool known = relation == ">=" || relation == ">" || relation == "<=" || relation == "<" || relation == "==";
    if (!known || digit == std::string_view::npos) {
      throw UsageError(
          fmt::format("'{}' is not a range of versions: expected >=, >, <=, < or == before each version, "
                      "as in '>=2.11,<2.12'",
                      text));
    }
    bounds_.push_back({relation, numbers_of(part.substr(digit))});
    if (end == std::string_view::npos) return;
    begin = end + 1;
  }
}

bool VersionRange::holds(std::string_view version) const {
  const std::vector<int> given = numbers_of(version);
  return std::ranges::all_of(bounds_, [&](const Bound& bound) {
    const auto order = given <=> bound.version;
    if (bound.relation == ">=") return order >= 0;
    if (bound.relation == ">") return order > 0;
    if (bound.relation == "<=") return order <= 0;
    if (bound.relation == "<") return order < 0;
    return order == 0;
  });
}

bool Conditions::hold(const Setting& setting) const {
  const std::string kind = setting.stack.substr(0, setting.stack.find(':'));
  const bool on_stack = empty_or_holds(stack, setting.stack) || empty_or_holds(stack, kind);
  return on_stack && empty_or_holds(device, setting.device) && std::ranges::all_of(versions, [&](const auto& wanted) {
           const auto at = setting.versions.find(wanted.first);
           return at != setting.versions.end() && wanted.second.holds(at->second);
         });
}

bool Conditions::hold(const Case& c) const { return empty_or_holds(world, c.world); }

Conditions parse_conditions(const Json& json) {
  Members in(json, "when.");
  Conditions conditions;
  if (const Json* versions = in.find("versions")) {
    Members packages(*versions, "when.versions.");
    for (const auto& [name, range] : versions->items()) {
      conditions.versions.emplace_back(name, VersionRange(packages.text(name.c_str())));
    }
  }
  if (const Json* world = in.find("world")) conditions.world = parse_world(*world);
  if (in.find("device") != nullptr) conditions.device = in.texts("device");
  if (in.find("stack") != nullptr) conditions.stack = in.texts("stack");
  for (const std::string& device : conditions.device) {
    if (device != "cpu" && device != "cuda") {
      throw UsageError(fmt::format("'when.device': '{}' is no device: expected cpu or cuda", device));
    }
  }
  for (const std::string& stack : conditions.stack) {
    if (stack != "reference" && stack != "python" && !stack.starts_with("python:")) {
      throw UsageError(
          fmt::format("'when.stack': '{}' is no stack: expected reference, python or python:/folder", stack));
    }
  }
  in.nothing_else();
  return conditions;
}

}  // namespace regather::matrix
