#include "matrix/plan/filter.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/error.h"
#include "case/fixes.h"

namespace regather::matrix {
namespace {

constexpr size_t kLongestFilter = 16384;
constexpr int kDeepest = 100;  // of nested '(' and '!', so that hostile input cannot exhaust the stack

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '+' || c == '.'; }

std::string value_of(const Case& c, const std::string& axis) {
  if (axis == "fix") return print_fixes(c.fixes);
  for (const AxisValue& v : axis_values(c)) {
    if (v.axis == axis) return v.value;
  }
  return {};
}

struct Word {
  std::string text;
  size_t at;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Filter parse() {
    Filter filter = any();
    skip_space();
    if (at_ < text_.size()) fail(at_, "'&', '|' or the end");
    return filter;
  }

 private:
  Filter any() {
    std::vector<Filter> parts{all()};
    while (take('|')) parts.push_back(all());
    if (parts.size() == 1) return parts.front();
    return [parts](const Case& c) { return std::ranges::any_of(parts, [&](const Filter& f) { return f(c); }); };
  }

  Filter all() {
    std::vector<Filter> parts{negation()};
    while (take('&')) parts.push_back(negation());
    if (parts.size() == 1) return parts.front();
    return [parts](const Case& c) { return std::ranges::all_of(parts, [&](const Filter& f) { return f(c); }); };
  }

  Filter negation() {
    skip_space();
    if (depth_ == kDeepest) fail(at_, fmt::format("at most {} nested parentheses and negations", kDeepest));
    ++depth_;
    Filter result;
    if (take('!')) {
      result = [inner = negation()](const Case& c) { return !inner(c); };
    } else if (take('(')) {
      result = any();
      expect(')');
    } else {
      result = test();
    }
    --depth_;
    return result;
  }

  Filter test() {
    const Word first = word("an axis, '!' or '('");
    const std::string& axis = first.text;
    if (axis != "fix" && std::ranges::find(axes(), axis, &Axis::name) == axes().end()) {
      std::string names;
      for (const Axis& a : axes()) names += a.name + ", ";
      fail(first.at, "an axis: one of " + names + "fix");
    }
    if (take("!=")) {
      return [axis, value = value(axis)](const Case& c) { return value_of(c, axis) != value; };
    }
    if (take('=')) {
      return [axis, value = value(axis)](const Case& c) { return value_of(c, axis) == value; };
    }
    const Word relation = word("'=', '!=' or 'in'");
    if (relation.text == "in") {
      expect('(');
      std::vector<std::string> values{value(axis)};
      while (take(',')) values.push_back(value(axis));
      expect(')');
      return [axis, values](const Case& c) { return std::ranges::find(values, value_of(c, axis)) != values.end(); };
    }
    if (relation.text == "has" && axis == "fix") {
      const size_t begin = at_;
      const std::string fixes = value("fix");
      if (fixes == "none" || fixes.find('+') != std::string::npos) fail(begin, "the name of one fix");
      return [fixes](const Case& c) { return c.has(fixes); };
    }
    fail(relation.at, axis == "fix" ? "'=', '!=', 'in' or 'has'" : "'=', '!=' or 'in'");
  }

  // A value of the axis, canonical: fixes come back sorted.
  std::string value(const std::string& axis) {
    const auto [text, begin] = word("a value of " + axis);
    try {
      if (axis == "fix") return print_fixes(parse_fixes(text));
      Case scratch;
      set_axis(scratch, axis, text);
      return text;
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("filter '{}', position {}: {}", text_, begin + 1, e.what()));
    }
  }

  Word word(const std::string& expected) {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == begin) fail(begin, expected);
    return {std::string(text_.substr(begin, at_ - begin)), begin};
  }

  bool take(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  bool take(char token) { return take(std::string_view(&token, 1)); }

  void expect(char token) {
    if (!take(token)) fail(at_, fmt::format("'{}'", token));
  }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  [[noreturn]] void fail(size_t position, const std::string& expected) const {
    const std::string_view rest = text_.substr(position);
    size_t length = 0;
    while (length < rest.size() && is_word(rest[length])) ++length;
    const std::string found =
        rest.empty() ? "the end" : fmt::format("'{}'", rest.substr(0, std::max<size_t>(length, 1)));
    throw UsageError(
        fmt::format("filter '{}', position {}: found {}, expected {}", text_, position + 1, found, expected));
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Filter parse_filter(std::string_view text) {
  if (text.size() > kLongestFilter) {
    throw UsageError(fmt::format("a filter of {} characters: at most {}", text.size(), kLongestFilter));
  }
  return Parser(text).parse();
}

}  // namespace regather::matrix
