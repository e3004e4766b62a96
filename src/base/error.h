// The one exception type of the project and its CHECK.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace regather {

// A failure of regather or of what it runs. `domain` says which part speaks ("comm", "zero3", "definition"...).
class Error : public std::runtime_error {
 public:
  Error(std::string domain, const std::string& text, std::string_view file = {}, int line = 0);
  const std::string& domain() const { return domain_; }
  const std::string& where() const { return where_; }  // "file:line", empty when unknown

 private:
  std::string domain_;
  std::string where_;
};

// The user's input is at fault: says what was given, what was expected and what to do. Exit code 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& text) : Error("usage", text) {}
};

}  // namespace regather

// Throws Error(domain) with a formatted text unless the condition holds.
#define REGATHER_CHECK(condition, domain, ...)                                           \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      throw ::regather::Error((domain), ::fmt::format(__VA_ARGS__), __FILE__, __LINE__); \
    }                                                                                    \
  } while (false)
