#include "matrix/judge/past_document.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "matrix/judge/json_list.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

const Json& member(const Json& object, const char* path, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) throw UsageError(fmt::format("'{}{}' is absent", path, key));
  return *at;
}

PastCase parse_case(const Json& json) {
  PastCase c{.result = result_from_json(json), .attempts = {}, .verdict = {}};
  // Of a long document as little is kept as a comparison needs.
  c.result.also.clear();
  c.result.counters.clear();
  if (const auto attempts = json.find("attempts"); attempts != json.end()) {
    if (!attempts->is_array()) throw UsageError("'attempts': expected a list of outcomes");
    for (const Json& attempt : *attempts) {
      if (!attempt.is_string()) throw UsageError("'attempts': expected a list of outcomes");
      c.attempts.push_back(parse_outcome(attempt.get_ref<const std::string&>()));
    }
  }
  if (const auto verdict = json.find("verdict"); verdict != json.end()) {
    if (!verdict->is_string()) throw UsageError("'verdict': expected a string");
    c.verdict = parse_verdict(verdict->get_ref<const std::string&>());
  }
  return c;
}

// The line that a case of a document was made of.
std::string line_of(const Json& parsed, std::string_view text) {
  nlohmann::ordered_json json = in_order(parsed, text);
  json.erase("attempts");
  json.erase("verdict");
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void parse_plan(const Json& plan, PastDocument& document) {
  if (!plan.is_object()) throw UsageError("'plan': expected an object");
  const Json& definition = member(plan, "plan.", "definition");
  if (!definition.is_string()) throw UsageError("'plan.definition': expected a string");
  document.definition = definition.get<std::string>();
  const auto count = [&](const char* key) {
    const Json& number = member(plan, "plan.", key);
    if (!number.is_number_unsigned() || number > kMostCases) {
      throw UsageError(fmt::format("'plan.{}': expected the number of cases, at most {}", key, kMostCases));
    }
    return number.get<size_t>();
  };
  document.asked = count("cases");
  if (const auto hash = plan.find("hash"); hash != plan.end() && hash->is_string()) {
    document.hash = hash->get<std::string>();
  }
  const auto shard = plan.find("shard");
  if (shard == plan.end()) return;
  if (!shard->is_string()) throw UsageError("'plan.shard': expected a string, as in 2/4");
  document.shard = parse_shard(shard->get_ref<const std::string&>());
  document.selected = count("selected");
}

}  // namespace

PastDocument parse_document(const std::string& file, std::string_view text, bool with_lines) {
  PastDocument document;
  std::string where = fmt::format("document '{}'", file);
  try {
    const JsonList list = read_json_list(text, "cases");
    if (member(list.head, "", "schema") != 1) throw UsageError("'schema': this version reads schema 1");
    member(list.head, "", "cases");
    parse_plan(member(list.head, "", "plan"), document);
    if (const auto at = list.head.find("environment"); at != list.head.end()) {
      if (!at->is_object()) throw UsageError("'environment': expected an object");
      document.environment = in_order(list.head, list.head_text).at("environment");
    }
    if (const auto at = list.head.find("seconds"); at != list.head.end() && at->is_number())
      at->get_to(document.seconds);
    std::unordered_set<std::string> seen;
    for (const ListElement& element : list.elements) {
      where = fmt::format("document '{}', line {}", file, element.line);
      const Json parsed = Json::parse(element.text);
      document.cases.push_back(parse_case(parsed));
      const std::string which = id(document.cases.back().result.which);
      if (with_lines) document.cases.back().line = line_of(parsed, element.text);
      if (!seen.insert(which).second) throw UsageError(fmt::format("'{}' stands twice", which));
    }
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", where, e.what()));
  }
  return document;
}

}  // namespace regather::matrix
