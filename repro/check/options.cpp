#include "repro/check/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/embedded.h"
#include "base/error.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_options();
}

namespace regather::check {
namespace {

constexpr size_t kLongestName = 64;

const Json& document() {
  static const Json json = Json::parse(embedded_options().front().text);
  return json;
}

Names sorted(std::set<std::string> names) { return {names.begin(), names.end()}; }

Names list_of(const char* key) {
  Names names = document().at("deepspeed").at(key).get<Names>();
  std::ranges::sort(names);
  return names;
}

// Damerau's distance (Levenshtein's, and two neighbours that change places), cut off above two.
size_t distance(const std::string& a, const std::string& b) {
  if (a.size() > kLongestName || b.size() > kLongestName) return 3;
  if (a.size() > b.size() + 2 || b.size() > a.size() + 2) return 3;
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

}  // namespace

const std::vector<OptionClass>& option_classes() {
  static const std::vector<OptionClass> all = [] {
    std::vector<OptionClass> list;
    for (const Json& entry : document().at("classes")) {
      list.push_back(
          {entry.at("name"), entry.at("package"), entry.at("version"), entry.at("file"), entry.at("fields")});
    }
    return list;
  }();
  return all;
}

bool has_field(std::string_view class_name, const std::string& field) {
  return is_among(class_names(class_name), field);
}

std::optional<Default> default_of(const std::vector<std::string>& classes, const std::string& field) {
  for (const std::string& name : classes) {
    std::optional<Default> found;
    std::string releases;
    const OptionClass* from = nullptr;
    for (const OptionClass& c : option_classes()) {
      if (c.name != name || !c.fields.contains(field)) continue;
      const Json& value = c.fields.at(field);
      releases = found && found->value == value ? releases + " and " + c.version : c.version;
      found = Default{value, {}};
      from = &c;
    }
    if (!found) continue;
    found->source = fmt::format("{}'s default ({} {}, {})", name, from->package, releases, from->file);
    return found;
  }
  return std::nullopt;
}

std::optional<bool> flag_takes_value(std::string_view launcher, const std::string& flag) {
  const Json& flags = document().at("launchers").at(std::string(launcher));
  const auto at = flags.find(flag);
  if (at == flags.end()) return std::nullopt;
  return at->get<bool>();
}

const Names& training_names() {
  static const Names names = [] {
    std::set<std::string> all;
    for (const OptionClass& c : option_classes()) {
      if (c.package != "trl" && c.package != "transformers") continue;
      for (const auto& [field, value] : c.fields.items()) all.insert(field);
    }
    return sorted(std::move(all));
  }();
  return names;
}

const Names& fsdp_names() {
  static const Names names = [] {
    // Those of transformers' fsdp_config that accelerate's flags lack.
    std::set<std::string> all{"version",     "cpu_offload",       "limit_all_gathers", "xla",
                              "xla_fsdp_v2", "xla_fsdp_settings", "xla_fsdp_grad_ckpt"};
    for (const auto& [flag, takes] : document().at("launchers").at("accelerate").items()) {
      if (flag.starts_with("--fsdp_")) all.insert(flag.substr(7));
    }
    return sorted(std::move(all));
  }();
  return names;
}

const Names& accelerate_names() {
  static const Names names = [] {
    std::set<std::string> all;
    for (const auto& [flag, takes] : document().at("launchers").at("accelerate").items()) {
      if (flag.starts_with("--")) all.insert(flag.substr(2));
    }
    return sorted(std::move(all));
  }();
  return names;
}

const Names& deepspeed_names() {
  static const Names names = list_of("top");
  return names;
}

const Names& zero_names() {
  static const Names names = list_of("zero");
  return names;
}

const Names& class_names(std::string_view class_name) {
  static const std::map<std::string, Names, std::less<>> by_class = [] {
    std::map<std::string, std::set<std::string>> sets;
    for (const OptionClass& c : option_classes()) {
      for (const auto& [field, value] : c.fields.items()) sets[c.name].insert(field);
    }
    std::map<std::string, Names, std::less<>> lists;
    for (auto& [name, set] : sets) lists[name] = sorted(std::move(set));
    return lists;
  }();
  static const Names nothing;
  const auto at = by_class.find(class_name);
  return at == by_class.end() ? nothing : at->second;
}

bool ties_by_default(const std::string& model_type) {
  static const Names tied = document().at("tied").get<Names>();
  return std::ranges::find(tied, model_type) != tied.end();
}

bool is_among(const Names& names, const std::string& name) { return std::ranges::binary_search(names, name); }

std::optional<std::string> looks_like(const Names& names, const std::string& given) {
  const std::string* nearest = nullptr;
  size_t least = 3;
  for (const std::string& name : names) {
    const size_t edits = distance(given, name);
    if (edits < least && 3 * edits < given.size()) {
      least = edits;
      nearest = &name;
    }
  }
  return nearest == nullptr ? std::nullopt : std::optional<std::string>(*nearest);
}

}  // namespace regather::check
