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

}  // namespace

PastDocument parse_document(const std::string& file, std::string_view text) {
  PastDocument document;
  std::string where = fmt::format("document '{}'", file);
  try {
    const JsonList list = read_json_list(text, "cases");
    if (member(list.head, "", "schema") != 1) throw UsageError("'schema': this version reads schema 1");
    member(list.head, "", "cases");
    const Json& plan = member(list.head, "", "plan");
    if (!plan.is_object()) throw UsageError("'plan': expected an object");
    const Json& definition = member(plan, "plan.", "definition");
    const Json& asked = member(plan, "plan.", "cases");
    if (!definition.is_string()) throw UsageError("'plan.definition': expected a string");
    if (!asked.is_number_unsigned()) throw UsageError("'plan.cases': expected the number of cases");
    document.definition = definition.get<std::string>();
    document.asked = asked.get<size_t>();
    std::unordered_set<std::string> seen;
    for (const ListElement& element : list.elements) {
      where = fmt::format("document '{}', line {}", file, element.line);
      document.cases.push_back(parse_case(Json::parse(element.text)));
      const std::string which = id(document.cases.back().result.which);
      if (!seen.insert(which).second) throw UsageError(fmt::format("'{}' stands twice", which));
    }
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", where, e.what()));
  }
  return document;
}

}  // namespace regather::matrix
