#include "matrix/judge/json_list.h"

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "base/error.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeepest = 64;
constexpr size_t kMostMembers = 1000;  // of an object whose order is kept
constexpr size_t kLargestHead = 1 << 20;
constexpr size_t kLargestElement = 16 << 20;
constexpr size_t kMostElements = 1'000'000;

// How far the parser has read; structural characters are handled before the next one is taken.
struct Place {
  const char* at = nullptr;
  size_t line = 1;
};

class Characters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Characters(const char* at, Place* place) : at_(at), place_(place) {}
  reference operator*() const { return *at_; }
  Characters& operator++() {
    if (*at_ == '\n') ++place_->line;
    place_->at = ++at_;
    return *this;
  }
  Characters operator++(int) {
    const Characters before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Characters& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  Place* place_;
};

class Cutter : public nlohmann::json_sax<Json> {
 public:
  Cutter(std::string_view member, const Place& place) : member_(member), place_(place) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    at_member_ = name == member_;
    if (at_member_ && list_end != nullptr) throw UsageError(fmt::format("'{}' stands twice", member_));
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 1 && at_member_) not_a_list();
    if (depth_ == 2 && in_list_) {
      if (elements.size() == kMostElements) {
        throw UsageError(fmt::format("line {}: '{}' holds more than {} objects, the limit here", place_.line, member_,
                                     kMostElements));
      }
      elements.push_back({std::string_view(place_.at - 1, 1), place_.line});
    }
    return enter();
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 2 && in_list_) {
      ListElement& element = elements.back();
      element.text = {element.text.data(), static_cast<size_t>(place_.at - element.text.data())};
      if (element.text.size() > kLargestElement) {
        throw UsageError(fmt::format("line {}: an object of {} bytes in '{}': at most {}", element.line,
                                     element.text.size(), member_, kLargestElement));
      }
    }
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ == 0) not_an_object();
    if (depth_ == 2 && in_list_) not_objects();
    if (depth_ == 1 && at_member_) {
      in_list_ = true;
      list_begin = place_.at;
    }
    return enter();
  }
  bool end_array() override {
    --depth_;
    if (depth_ == 1 && in_list_) {
      in_list_ = false;
      list_end = place_.at - 1;
    }
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& e) override {
    throw UsageError(fmt::format("line {}: not JSON: {}", place_.line, e.what()));
  }

  std::vector<ListElement> elements;
  const char* list_begin = nullptr;  // after '['
  const char* list_end = nullptr;    // at ']'

 private:
  bool value() const {
    if (depth_ == 0) not_an_object();
    if (depth_ == 1 && at_member_) not_a_list();
    if (depth_ == 2 && in_list_) not_objects();
    return true;
  }
  bool enter() {
    if (++depth_ > kDeepest) {
      throw UsageError(fmt::format("line {}: nested deeper than {}, the limit here", place_.line, kDeepest));
    }
    return true;
  }
  [[noreturn]] static void not_an_object() { throw UsageError("expected a JSON object"); }
  [[noreturn]] void not_a_list() const { throw UsageError(fmt::format("'{}': expected a list", member_)); }
  [[noreturn]] void not_objects() const {
    throw UsageError(fmt::format("line {}: '{}': expected objects in the list", place_.line, member_));
  }

  std::string_view member_;
  const Place& place_;
  size_t depth_ = 0;
  bool at_member_ = false;
  bool in_list_ = false;
};

// No deeper than kDeepest: it has been read.
void check_members(const Json& json) {
  if (json.is_object() && json.size() > kMostMembers) {
    throw UsageError(fmt::format("an object of {} members: at most {}", json.size(), kMostMembers));
  }
  if (!json.is_structured()) return;
  for (const Json& element : json) check_members(element);
}

}  // namespace

JsonList read_json_list(std::string_view text, std::string_view member) {
  Place place{.at = text.data(), .line = 1};
  Cutter cutter(member, place);
  Json::sax_parse(Characters(text.data(), &place), Characters(text.data() + text.size(), &place), &cutter);
  const bool found = cutter.list_end != nullptr;
  const std::string_view before = found ? std::string_view(text.data(), cutter.list_begin) : text;
  const std::string_view after = found ? std::string_view(cutter.list_end, text.data() + text.size()) : "";
  if (before.size() + after.size() > kLargestHead) {
    throw UsageError(fmt::format("beside '{}' it holds more than {} bytes, the limit here", member, kLargestHead));
  }
  std::string head = std::string(before) + std::string(after);
  return {.head = Json::parse(head), .head_text = std::move(head), .elements = std::move(cutter.elements)};
}

nlohmann::ordered_json in_order(const Json& parsed, std::string_view text) {
  check_members(parsed);
  return nlohmann::ordered_json::parse(text);
}

}  // namespace regather::matrix
