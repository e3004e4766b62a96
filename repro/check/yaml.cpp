#include <fmt/format.h>
#include <re2/re2.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "repro/check/tree.h"

namespace regather::check {
namespace {

constexpr std::string_view kStandard = "tag:yaml.org,2002:";

// Builds the tree. A key is a scalar event where the builder wants one; an alias becomes a copy of what its anchor
// named, which the builder counts.
class Handler : public YAML::EventHandler {
 public:
  explicit Handler(const std::string& file) : tree_(file), file_(file) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { scalar(mark, anchor, nullptr, "null"); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto at = anchors_.find(anchor);
    if (at == anchors_.end()) fail(mark, "an alias inside what it stands for");
    if (tree_.wants_key()) fail(mark, "an alias as a key");
    tree_.value(at->second);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (tag == "?") {
      scalar(mark, anchor, resolve_scalar(value), value);
    } else if (tag == "!" || tag.empty() || tag == fmt::format("{}str", kStandard)) {
      scalar(mark, anchor, value, value);
    } else if (tag.starts_with(kStandard) && !tag.substr(kStandard.size()).starts_with("python")) {
      scalar(mark, anchor, resolve_scalar(value), value);
    } else {
      fail(mark, fmt::format("the tag {}, which PyYAML's safe loader refuses", in_quotes(tag)));
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    start(mark, anchor);
    tree_.open_list();
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    start(mark, anchor);
    tree_.open_map();
  }
  void OnMapEnd() override { end(); }

  Tree finish() { return tree_.finish(); }

 private:
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw UsageError(fmt::format("'{}', line {}: {}", file_, mark.line + 1, what));
  }
  void scalar(const YAML::Mark& mark, YAML::anchor_t anchor, Json value, const std::string& text) {
    if (tree_.wants_key()) return tree_.key(text);
    if (anchor != 0) keep(mark, anchor, value);
    tree_.value(std::move(value));
  }
  void start(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (tree_.wants_key()) fail(mark, "a mapping or list as a key; expected a name");
    opened_.push_back(anchor);
  }
  void end() {
    tree_.close();
    if (opened_.back() != 0) keep({}, opened_.back(), tree_.last());
    opened_.pop_back();
  }
  void keep(const YAML::Mark& mark, YAML::anchor_t anchor, const Json& value) {
    kept_ += values_in(value);
    if (kept_ > kMostKept) fail(mark, "anchors that hold more than this reader keeps");
    anchors_[anchor] = value;
  }

  static constexpr size_t kMostKept = 100000;
  TreeBuilder tree_;
  const std::string& file_;
  std::map<YAML::anchor_t, Json> anchors_;
  size_t kept_ = 0;
  std::vector<YAML::anchor_t> opened_;
};

// `<<: *base` and `<<: [*a, *b]`: what the mapping itself says stands, then the first that says it.
void merge_keys(Json& json) {
  if (!json.is_structured()) return;
  for (Json& below : json) merge_keys(below);
  if (!json.is_object()) return;
  const auto at = json.find("<<");
  if (at == json.end()) return;
  const Json given = std::move(*at);
  json.erase(at);
  for (const Json& base : given.is_array() ? given : Json::array({given})) {
    if (!base.is_object()) continue;
    for (const auto& [key, value] : base.items()) {
      if (!json.contains(key)) json[key] = value;
    }
  }
}

// yaml-cpp keeps every token of a flow collection until it knows whether the collection is a key: half a gigabyte for
// two million brackets. More open ones than any configuration has are refused before it sees them.
void check_brackets(const std::string& file, std::string_view text) {
  constexpr int kMostOpen = 1000;
  int open = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++open;
    if (c == ']' || c == '}') --open;
    if (open > kMostOpen) {
      throw UsageError(fmt::format("'{}' opens more than {} brackets inside one another; expected a configuration file",
                                   file, kMostOpen));
    }
  }
}

}  // namespace

Json resolve_scalar(const std::string& text) {
  static const RE2 null(R"(~|null|Null|NULL|)");
  static const RE2 yes(R"(yes|Yes|YES|true|True|TRUE|on|On|ON)");
  static const RE2 no(R"(no|No|NO|false|False|FALSE|off|Off|OFF)");
  static const RE2 decimal(R"([-+]?(?:0|[1-9][0-9_]*))");
  static const RE2 real(R"([-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?)");
  if (text.size() > 64) return text;
  if (RE2::FullMatch(text, null)) return nullptr;
  if (RE2::FullMatch(text, yes)) return true;
  if (RE2::FullMatch(text, no)) return false;
  std::string digits = text;
  std::erase(digits, '_');
  if (RE2::FullMatch(text, decimal) && digits.size() < 19) return std::stoll(digits);
  if (RE2::FullMatch(text, real)) return std::strtod(digits.c_str(), nullptr);
  return text;
}

Tree parse_yaml(const std::string& file, std::string_view text) {
  check_brackets(file, text);
  Handler handler(file);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(handler);
    Tree tree = handler.finish();
    if (parser) {
      Handler another(file);
      if (parser.HandleNextDocument(another)) {
        throw UsageError(fmt::format("'{}' holds more than one YAML document; expected one", file));
      }
    }
    merge_keys(tree.root);
    return tree;
  } catch (const YAML::Exception& e) {
    throw UsageError(fmt::format("'{}' is no YAML at line {}: {}", file, e.mark.line + 1, e.msg));
  }
}

}  // namespace regather::check
