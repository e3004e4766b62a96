#include "repro/check/tree.h"

#include <fmt/format.h>

#include "base/error.h"

namespace regather::check {
namespace {
constexpr size_t kDeepest = 64;
constexpr size_t kMostValues = 100000;
constexpr size_t kLongestQuote = 80;
constexpr size_t kMostRepeated = 20;
}  // namespace

void TreeBuilder::count(size_t values) {
  values_ += values;
  if (values_ > kMostValues) {
    throw UsageError(
        fmt::format("'{}' holds more than {} values once its aliases are written out, the limit here; expected a "
                    "configuration file",
                    file_, kMostValues));
  }
}

void TreeBuilder::open(Json empty) {
  if (open_.size() >= kDeepest) {
    throw UsageError(
        fmt::format("'{}' is nested deeper than {} levels; expected a configuration file", file_, kDeepest));
  }
  count(1);
  open_.push_back({std::move(empty), {}, false});
}

std::string TreeBuilder::path() const {
  std::string joined;
  for (const Level& level : open_) {
    if (level.value.is_object()) joined += (joined.empty() ? "" : ".") + level.key;
  }
  return joined;
}

void TreeBuilder::key(const std::string& name) {
  Level& level = open_.back();
  level.key = name;
  level.has_key = true;
  if (level.value.contains(name) && tree_.repeated.size() < kMostRepeated) tree_.repeated.push_back(path());
}

void TreeBuilder::put(Json value) {
  if (open_.empty()) {
    tree_.root = std::move(value);
    done_ = true;
    return;
  }
  Level& level = open_.back();
  if (level.value.is_array()) {
    level.value.push_back(std::move(value));
    return;
  }
  level.value[level.key] = std::move(value);
  level.has_key = false;
}

void TreeBuilder::value(Json scalar_or_copy) {
  count(values_in(scalar_or_copy));
  put(std::move(scalar_or_copy));
}

void TreeBuilder::close() {
  Json closed = std::move(open_.back().value);
  open_.pop_back();
  put(std::move(closed));
}

const Json& TreeBuilder::last() const {
  if (open_.empty()) return tree_.root;
  const Level& level = open_.back();
  return level.value.is_array() ? level.value.back() : level.value.at(level.key);
}

Tree TreeBuilder::finish() {
  if (!done_) throw UsageError(fmt::format("'{}' holds nothing; expected a configuration", file_));
  return std::move(tree_);
}

size_t values_in(const Json& json) {
  size_t values = 1;
  if (json.is_structured()) {
    for (const Json& below : json) values += values_in(below);
  }
  return values;
}

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, kLongestQuote)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out + (text.size() > kLongestQuote ? "'..." : "'");
}

const Json* at_path(const Json& json, std::string_view dotted) {
  const Json* at = &json;
  while (at->is_object()) {
    const size_t dot = dotted.find('.');
    const auto found = at->find(std::string(dotted.substr(0, dot)));
    if (found == at->end()) return nullptr;
    at = &*found;
    if (dot == std::string_view::npos) return at;
    dotted.remove_prefix(dot + 1);
  }
  return nullptr;
}

}  // namespace regather::check
