#include "reports/text.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

namespace regather::reports {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Character {
  size_t bytes = 1;
  std::optional<uint32_t> point;  // nothing: no UTF-8
};

// The first character of a text that is not empty.
Character decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, first};
  const size_t bytes = first >= 0xF0 && first <= 0xF4 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (bytes == 0 || first > 0xF4 || text.size() < bytes) return {};
  uint32_t point = first & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    point = (point << 6U) | (byte(i) & 0x3FU);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kLeast[bytes] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return {};
  return {bytes, point};
}

bool in_xml(uint32_t point) {
  return point == '\t' || point == '\n' || point == '\r' || (point >= 0x20 && point < 0xFFFE) || point > 0xFFFF;
}

}  // namespace

std::string shortened(std::string_view text, size_t longest) {
  if (text.size() <= longest) return std::string(text);
  size_t end = longest;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string for_xml(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const Character c = decode(text);
    safe += c.point && in_xml(*c.point) ? text.substr(0, c.bytes) : kReplacement;
    text.remove_prefix(c.bytes);
  }
  return safe;
}

std::string for_markdown(std::string_view text) {
  std::string safe;
  for (const char c : for_xml(text)) {
    switch (c) {
      case '\n':
      case '\r':
      case '\t':
        safe += ' ';
        break;
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '@':
        safe += "&#64;";
        break;
      case '#':
        safe += "&#35;";
        break;
      case ':':
        safe += "&#58;";  // no address becomes a link
        break;
      case '\\':
      case '`':
      case '*':
      case '_':
      case '{':
      case '}':
      case '[':
      case ']':
      case '(':
      case ')':
      case '!':
      case '|':
      case '~':
        safe += '\\';
        safe += c;
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string for_workflow_message(std::string_view text) {
  std::string safe;
  for (const char c : for_xml(text)) {
    if (c == '%' || c == '\r' || c == '\n') {
      safe += fmt::format("%{:02X}", static_cast<unsigned>(c));
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string for_workflow_property(std::string_view text) {
  std::string safe;
  for (const char c : for_workflow_message(text)) {
    if (c == ':' || c == ',') {
      safe += fmt::format("%{:02X}", static_cast<unsigned>(c));
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace regather::reports
