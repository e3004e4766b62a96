#include "matrix/death/backtrace.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>

namespace regather::matrix {
namespace {

constexpr std::string_view kIndent = "    ";
constexpr size_t kLongestSymbol = 160;
constexpr size_t kLongestMangled = 4096;

// "ns::f<int>(long, X const&) const" -> "ns::f<int>": what is called says enough of where.
std::string without_arguments(const std::string& name) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)";
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] != '(' || depth > 0) continue;
    if (name.compare(i, kUnnamed.size(), kUnnamed) != 0) return name.substr(0, i);
    i += kUnnamed.size() - 1;
  }
  return name;
}

std::string demangled(std::string_view symbol) {
  const std::string mangled(symbol.substr(0, kLongestMangled));
  int status = 0;
  char* name = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string text = status == 0 ? without_arguments(name) : mangled;
  std::free(name);  // NOLINT: the demangler allocates with malloc
  if (text.size() > kLongestSymbol) text = text.substr(0, kLongestSymbol) + "...";
  return text;
}

// "FILE(SYMBOL+0x12) [0x7f00]", as glibc writes a frame; SYMBOL may be empty.
std::optional<std::string> frame(std::string_view line) {
  const size_t open = line.find('(');
  const size_t close = line.find(')', open);
  if (open == std::string_view::npos || close == std::string_view::npos || line.empty() || line.back() != ']' ||
      line.find("[0x", close) == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view inside = line.substr(open + 1, close - open - 1);
  const std::string_view symbol = inside.substr(0, inside.find("+0x"));
  const std::string_view file = line.substr(0, open);
  if (!symbol.empty()) return fmt::format("{}{}", kIndent, demangled(symbol));
  // An unnamed function of a program or library: its place there is the same in every run, for addr2line.
  return fmt::format("{}{}{}", kIndent, file.substr(file.rfind('/') + 1), inside.starts_with("+0x") ? inside : "");
}

std::string without_addresses(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    text += line[i];
    if (!line.substr(i).starts_with("0x")) continue;
    text += "x?";
    ++i;
    while (i + 1 < line.size() && std::isxdigit(static_cast<unsigned char>(line[i + 1])) != 0) ++i;
  }
  return text;
}

}  // namespace

std::string readable_backtrace(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  std::string readable;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    readable += frame(line).value_or(without_addresses(line));
    if (!text.empty()) readable += '\n';
  }
  return readable;
}

TakenApart take_apart(std::string_view readable) {
  constexpr std::string_view kStack = "stack of ";
  TakenApart parts;
  bool in_stack = false;
  while (!readable.empty()) {
    const std::string_view line = readable.substr(0, readable.find('\n'));
    readable.remove_prefix(std::min(readable.size(), line.size() + 1));
    const size_t at = line.find(kStack);
    in_stack = in_stack && line.starts_with(kIndent);
    if (in_stack) {
      parts.stacks.back().frames.emplace_back(line.substr(kIndent.size()));
    } else if (at != std::string_view::npos && line.ends_with(':')) {
      in_stack = true;
      const std::string_view thread = line.substr(at + kStack.size());
      parts.stacks.push_back({.head = std::string(line.substr(0, at + kStack.find(' '))),
                              .thread = std::string(thread.substr(0, thread.size() - 1)),
                              .frames = {}});
    } else {
      parts.words += parts.words.empty() ? "" : "\n";
      parts.words += line;
    }
  }
  return parts;
}

std::string_view last_lines(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  text.remove_prefix(text.size() - bytes);
  text.remove_prefix(std::min(text.size(), text.find('\n') + 1));
  return text;
}

}  // namespace regather::matrix
