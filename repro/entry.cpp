#include "repro/entry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/embedded.h"
#include "base/error.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_register();
}

namespace regather::repro {
namespace {

using Json = nlohmann::json;

constexpr std::array kStatuses{"fixed", "open", "refuted"};

// The members of one object; those that nobody has asked for are unknown.
class Reader {
 public:
  Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) throw UsageError(fmt::format("'{}': expected an object", path_));
  }

  const Json* find(const char* key) {
    asked_.emplace_back(key);
    const auto at = object_.find(key);
    return at == object_.end() ? nullptr : &*at;
  }

  const Json& member(const char* key) {
    const Json* value = find(key);
    if (value == nullptr) throw UsageError(fmt::format("'{}{}' is absent", path_, key));
    return *value;
  }

  std::string text(const char* key) {
    const Json& value = member(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      throw UsageError(fmt::format("'{}{}': expected a string that is not empty", path_, key));
    }
    return value.get<std::string>();
  }

  std::string text_or_empty(const char* key) { return find(key) == nullptr ? std::string() : text(key); }

  std::vector<std::string> texts(const char* key) {
    const Json& list = member(key);
    if (!list.is_array()) throw UsageError(fmt::format("'{}{}': expected a list of strings", path_, key));
    std::vector<std::string> result;
    for (const Json& entry : list) {
      if (!entry.is_string()) throw UsageError(fmt::format("'{}{}': expected strings in the list", path_, key));
      result.push_back(entry.get<std::string>());
    }
    return result;
  }

  std::vector<Case> cases(const char* key) {
    std::vector<Case> result;
    for (const std::string& text : texts(key)) result.push_back(parse_id(text));
    return result;
  }

  void nothing_else() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::find(asked_, key) == asked_.end()) {
        throw UsageError(fmt::format("'{}{}' is not a member: expected {}", path_, key, fmt::join(asked_, ", ")));
      }
    }
  }

 private:
  const Json& object_;
  std::string path_;
  std::vector<std::string> asked_;
};

Status parse_status(const std::string& text) {
  const auto at = std::ranges::find(kStatuses, text);
  if (at == kStatuses.end()) {
    throw UsageError(fmt::format("'status' is '{}': expected one of {}", text, fmt::join(kStatuses, ", ")));
  }
  return static_cast<Status>(at - kStatuses.begin());
}

Pattern parse_pattern(const Json& json) {
  Reader in(json, "signatures.");
  Pattern pattern;
  if (const std::string outcome = in.text_or_empty("outcome"); !outcome.empty()) {
    pattern.outcome = parse_outcome(outcome);
  }
  if (const std::string phase = in.text_or_empty("phase"); !phase.empty()) pattern.phase = parse_phase(phase);
  pattern.mechanism = in.text_or_empty("mechanism");
  pattern.type = in.text_or_empty("type");
  pattern.text = in.text_or_empty("text");
  in.nothing_else();
  if (json.empty()) throw UsageError("'signatures': a signature that gives nothing would match everything");
  return pattern;
}

Entry read(const Json& json) {
  Reader in(json, "");
  if (in.member("schema") != 1) throw UsageError("'schema': expected 1");
  Entry entry;
  entry.id = in.text("id");
  entry.aliases = in.texts("aliases");
  entry.title = in.text("title");
  entry.status = parse_status(in.text("status"));
  entry.mechanism = in.text("mechanism");
  const Json& axes_json = in.member("axes");
  Reader axes_in(axes_json, "axes.");
  for (const Axis& axis : axes()) {
    if (axes_in.find(axis.name.c_str()) == nullptr) continue;
    const std::vector<std::string> values = axes_in.texts(axis.name.c_str());
    Case scratch;
    for (const std::string& value : values) set_axis(scratch, axis.name, value);
    entry.axes.emplace_back(axis.name, values);
  }
  axes_in.nothing_else();
  entry.versions = in.text("versions");
  entry.symptom = in.text("symptom");
  const Json& signatures = in.member("signatures");
  if (!signatures.is_array()) throw UsageError("'signatures': expected a list");
  for (const Json& signature : signatures) entry.signatures.push_back(parse_pattern(signature));
  entry.workarounds = in.texts("workarounds");
  entry.references = in.texts("references");
  Reader cases(in.member("cases"), "cases.");
  entry.without = cases.cases("without");
  entry.with = cases.cases("with");
  entry.control = cases.cases("control");
  cases.nothing_else();
  in.nothing_else();
  if (entry.without.empty()) throw UsageError("'cases.without': expected at least one case");
  if (entry.status == Status::fixed && entry.with.empty()) {
    throw UsageError("'cases.with': expected at least one case, since the status is fixed");
  }
  return entry;
}

bool same(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

const char* name(Status status) { return kStatuses.at(static_cast<size_t>(status)); }

bool Pattern::matches(const CaseResult& result) const {
  if (outcome && *outcome != result.outcome) return false;
  const bool asks_signature = phase || !mechanism.empty() || !type.empty() || !text.empty();
  if (!result.signature) return !asks_signature;
  const Signature& s = *result.signature;
  return (!phase || *phase == s.phase) && (mechanism.empty() || mechanism == s.mechanism) &&
         (type.empty() || type == s.type) && s.text.find(text) != std::string::npos;
}

Entry parse_entry(const std::string& name, std::string_view text) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& e) {
    throw UsageError(fmt::format("register entry '{}': not JSON: {}", name, e.what()));
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("register entry '{}': {}", name, e.what()));
  }
}

const std::vector<Entry>& known_entries() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> entries;
    for (const EmbeddedFile& file : embedded_register()) {
      entries.push_back(parse_entry(std::string(file.name), file.text));
    }
    std::ranges::sort(entries, {}, &Entry::id);
    return entries;
  }();
  return all;
}

const Entry& find_entry(std::string_view id) {
  std::vector<std::string_view> ids;
  for (const Entry& entry : known_entries()) {
    if (same(entry.id, id)) return entry;
    for (const std::string& alias : entry.aliases) {
      if (same(alias, id)) return entry;
    }
    ids.push_back(entry.id);
  }
  throw UsageError(fmt::format("'{}' is not in the register: expected one of {}, or all", id, fmt::join(ids, ", ")));
}

}  // namespace regather::repro
