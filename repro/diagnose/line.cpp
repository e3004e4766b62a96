#include "repro/diagnose/line.h"

#include "repro/diagnose/fixed_pattern.h"

namespace regather::repro {
namespace {

constexpr int kMostPrefixes = 6;

// Escape sequences (ECMA-48: CSI ... final byte, OSC ... BEL) go, and so does every other control character but tab.
std::string without_controls(std::string_view line) {
  std::string text;
  text.reserve(line.size());
  for (size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c == 0x1b && i + 1 < line.size() && line[i + 1] == '[') {
      for (i += 2; i < line.size() && (line[i] < '@' || line[i] > '~');) ++i;
    } else if (c == 0x1b && i + 1 < line.size() && line[i + 1] == ']') {
      while (i < line.size() && line[i] != '\a') ++i;
    } else if (c == '\t' || c >= 0x20) {
      text += line[i];
    }
  }
  return text;
}

// How many bytes the UTF-8 sequence at `i` has; 0 when it is none.
size_t sequence_at(const std::string& text, size_t i) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
  const unsigned first = byte(i);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xc0U) != 0x80U) return 0;
  }
  if ((first == 0xe0 && byte(i + 1) < 0xa0) || (first == 0xed && byte(i + 1) > 0x9f) ||
      (first == 0xf0 && byte(i + 1) < 0x90) || (first == 0xf4 && byte(i + 1) > 0x8f)) {
    return 0;
  }
  return length;
}

void replace_invalid(std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = sequence_at(text, i);
    if (length == 0) text[i] = '?';
    i += length == 0 ? 1 : length;
  }
}

// Time stamps say nothing of who writes.
const re2::RE2& time_stamp() {
  static const FixedPattern pattern(
      R"(^(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|)"
      R"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?: (?:stdout|stderr) [FP])?(?: ?[:|-])?\s)");
  return pattern;
}

const re2::RE2& writer() {
  static const FixedPattern pattern(
      R"(^(\[(?:rank|Rank |default|RANK )\d+\]:?|\[\d+,\d+\]<std(?:out|err)>:|\([A-Za-z_][\w .-]{0,60}pid=\d+[^)]{0,80}\)|)"
      R"((?:worker|node|host|rank|pod)[-_/]?[\w.-]{0,60}\d:|\[(?:pod|worker|node)[/-][^\]]{1,100}\]|[\w.-]{1,60}\s+\| |\d{1,4}: )\s?)");
  return pattern;
}

// A progress bar has no line end of its own: what comes next stands behind it.
const re2::RE2& bar() {
  static const FixedPattern pattern(
      R"(^(?:[A-Za-z][\w ]{0,40}: *)?\s*\d{1,3}%\|[^|]{0,200}\|[^\[\]]{0,60}\[[^\]]{0,200}\])");
  return pattern;
}

// {"log":"...\n","stream":"stderr",...}, as Docker keeps it.
void unwrap_docker(std::string& text) {
  static const FixedPattern pattern(R"re(\{"log":"(.*?)(?:\\r)?(?:\\n)?","stream":"std(?:out|err)".*\}\s*)re");
  std::string inner;
  if (!text.starts_with("{\"log\":\"") || !re2::RE2::FullMatch(text, pattern, &inner)) return;
  text.clear();
  for (size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] == '\\' && i + 1 < inner.size() && (inner[i + 1] == '"' || inner[i + 1] == '\\')) ++i;
    text += inner[i];
  }
}

}  // namespace

CleanLine clean_line(std::string_view line) {
  line = line.substr(0, kLongestLine);
  CleanLine clean;
  clean.text = without_controls(line);
  replace_invalid(clean.text);
  unwrap_docker(clean.text);
  re2::StringPiece rest(clean.text);
  for (int i = 0; i < kMostPrefixes; ++i) {
    re2::StringPiece who;
    if (re2::RE2::Consume(&rest, bar()) || re2::RE2::Consume(&rest, time_stamp())) continue;
    if (!re2::RE2::Consume(&rest, writer(), &who)) break;
    while (who.ends_with(" ")) who.remove_suffix(1);
    clean.source += std::string(who.data(), who.size());
  }
  clean.text = std::string(rest.data(), rest.size());
  return clean;
}

}  // namespace regather::repro
