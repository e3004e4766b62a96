// A tree of values out of JSON or YAML that somebody else wrote, built event by event under limits, so that neither
// depth nor aliases nor numbers of entries cost more than they are allowed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace regather::check {

using Json = nlohmann::json;

constexpr size_t kLargestFile = 2 << 20;  // bytes of one configuration file

// What a reader of either format makes. Keys that stand twice in one mapping: the last counts, as in Python, and
// `repeated` has their dotted paths.
struct Tree {
  Json root;
  std::vector<std::string> repeated;
};

class TreeBuilder {
 public:
  explicit TreeBuilder(std::string file) : file_(std::move(file)) {}

  // In the order of the text. Each throws UsageError past a limit: 64 levels, 100 000 values.
  void open_map() { open(Json::object()); }
  void open_list() { open(Json::array()); }
  void close();
  void key(const std::string& name);
  void value(Json scalar_or_copy);

  // What was put last: the map or list that close() has ended.
  const Json& last() const;

  // Whether a key is expected here.
  bool wants_key() const { return !open_.empty() && open_.back().value.is_object() && !open_.back().has_key; }
  bool empty() const { return open_.empty() && !done_; }

  Tree finish();

 private:
  struct Level {
    Json value;
    std::string key;
    bool has_key = false;
  };
  void open(Json empty);
  void put(Json value);
  void count(size_t values);
  std::string path() const;

  std::string file_;
  std::vector<Level> open_;
  Tree tree_;
  size_t values_ = 0;
  bool done_ = false;
};

// Of a value and everything below it.
size_t values_in(const Json& json);

// Text of others as it may stand in a message: in quotes, unprintable bytes as \xNN, cut after 80 bytes.
std::string in_quotes(std::string_view text);

// Throw UsageError naming the file, the place and what is wrong.
Tree parse_json(const std::string& file, std::string_view text);
// One document, its plain scalars read as PyYAML's safe loader reads them (YAML 1.1: `no` is false, `1e-5` a string).
Tree parse_yaml(const std::string& file, std::string_view text);

// A plain YAML scalar.
Json resolve_scalar(const std::string& text);

// The dotted path in objects, or nullptr.
const Json* at_path(const Json& json, std::string_view dotted);

}  // namespace regather::check
