#include "matrix/judge/members.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace regather::matrix {

using Json = nlohmann::json;

Members::Members(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  const std::string whole = path_.substr(0, path_.find_last_not_of('.') + 1);
  throw UsageError(whole.empty() ? "expected an object" : fmt::format("'{}': expected an object", whole));
}

const Json* Members::find(const char* key) {
  asked_.emplace_back(key);
  const auto at = object_.find(key);
  return at == object_.end() ? nullptr : &*at;
}

const Json& Members::member(const char* key) {
  const Json* value = find(key);
  if (value == nullptr) throw UsageError(fmt::format("'{}{}' is absent", path_, key));
  return *value;
}

std::string Members::text(const char* key) {
  const Json& value = member(key);
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) fail(key, "a string that is not empty");
  return value.get<std::string>();
}

std::string Members::text_or_empty(const char* key) { return object_.contains(key) ? text(key) : (find(key), ""); }

std::vector<std::string> Members::texts(const char* key) {
  const Json& list = member(key);
  if (!list.is_array()) fail(key, "a list of strings");
  std::vector<std::string> result;
  for (const Json& entry : list) {
    if (!entry.is_string() || entry.get_ref<const std::string&>().empty()) fail(key, "a list of strings");
    result.push_back(entry.get<std::string>());
  }
  return result;
}

std::vector<Members> Members::objects(const char* key) {
  const Json& list = member(key);
  if (!list.is_array()) fail(key, "a list of objects");
  std::vector<Members> result;
  for (const Json& entry : list) result.emplace_back(entry, fmt::format("{}{}[{}].", path_, key, result.size()));
  return result;
}

void Members::nothing_else() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(asked_, key) == asked_.end()) {
      throw UsageError(fmt::format("'{}{}' is not a member: expected {}", path_, key, fmt::join(asked_, ", ")));
    }
  }
}

void Members::fail(const char* key, const char* expected) const {
  std::string given = object_.at(key).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (given.size() > 60) given = given.substr(0, 60) + "...";
  throw UsageError(fmt::format("'{}{}' is {}: expected {}", path_, key, given, expected));
}

}  // namespace regather::matrix
