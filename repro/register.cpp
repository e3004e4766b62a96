#include "repro/register.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "base/embedded.h"
#include "base/error.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_register();
}

namespace regather::repro {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// Every name, in lower case, and the entry that answers to it.
std::map<std::string, const Entry*> name_all(const std::vector<Entry>& entries) {
  std::map<std::string, const Entry*> names;
  const auto add = [&](const std::string& name, const Entry& entry) {
    const auto [at, added] = names.emplace(lower(name), &entry);
    if (!added && at->second != &entry) {
      throw UsageError(fmt::format("register: '{}' is a name of {} and of {}", name, at->second->id, entry.id));
    }
  };
  for (const Entry& entry : entries) {
    add(entry.id, entry);
    for (const std::string& alias : entry.aliases) add(alias, entry);
  }
  return names;
}

}  // namespace

const std::vector<Entry>& known_entries() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> entries;
    for (const EmbeddedFile& file : embedded_register()) {
      entries.push_back(parse_entry(std::string(file.name), file.text));
    }
    std::ranges::sort(entries, {}, &Entry::id);
    name_all(entries);
    return entries;
  }();
  return all;
}

const Entry& find_entry(std::string_view id) {
  static const std::map<std::string, const Entry*> names = name_all(known_entries());
  const std::string wanted = lower(id);
  if (const auto at = names.find(wanted); at != names.end()) return *at->second;
  // Those of the same project, or with the same number.
  const std::string project = wanted.substr(0, wanted.find('#'));
  const std::string number = wanted.substr(std::min(wanted.find('#'), wanted.size()));
  std::vector<std::string_view> close;
  for (const Entry& entry : known_entries()) {
    const std::string known = lower(entry.id);
    if (known.starts_with(project + "#") || (number.size() > 1 && known.ends_with(number))) close.push_back(entry.id);
  }
  throw UsageError(fmt::format("'{}' is not in the register: expected an id of `repro list`, or all{}", id,
                               close.empty() ? "" : fmt::format("; close ones: {}", fmt::join(close, ", "))));
}

}  // namespace regather::repro
