// Lines within a part of a log: both '\n' and '\r', by which progress bars rewrite theirs, end one. A line longer than
// kLongestLine is looked at in pieces.
#pragma once

#include <cstddef>
#include <string_view>

#include "repro/diagnose/line.h"

namespace regather::repro {

struct Span {
  size_t begin = 0;
  size_t end = 0;
  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
};

// The line that holds `at`, or the piece of it round `at`.
inline Span line_at(std::string_view text, size_t at) {
  const auto ends = [](char c) { return c == '\n' || c == '\r'; };
  Span line{at, at};
  while (line.begin > 0 && at - line.begin < kLongestLine / 2 && !ends(text[line.begin - 1])) --line.begin;
  while (line.end < text.size() && line.end - at < kLongestLine / 2 && !ends(text[line.end])) ++line.end;
  return line;
}

// The one after it, and the one before; empty at the text's ends.
inline Span line_after(std::string_view text, const Span& line) {
  size_t begin = line.end;
  if (begin < text.size() && text[begin] == '\r') ++begin;
  if (begin < text.size() && text[begin] == '\n') ++begin;
  return begin < text.size() ? line_at(text, begin) : Span{text.size(), text.size()};
}
inline Span line_before(std::string_view text, const Span& line) {
  size_t end = line.begin;
  if (end > 0 && text[end - 1] == '\n') --end;
  if (end > 0 && end < line.begin && text[end - 1] == '\r') --end;
  if (end == 0) return {};
  Span before = line_at(text, end - 1);
  before.end = end;
  return before;
}

}  // namespace regather::repro
