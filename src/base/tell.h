// What a program says to people, on standard error.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace regather {

// Says it if it can: a full disk or a closed pipe behind standard error must not end a run, whose results are in files.
template <typename... T>
void tell(fmt::format_string<T...> format, T&&... parts) {
  const std::string text = fmt::format(format, std::forward<T>(parts)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace regather
