// What the fuzzers of parsers have in common: a parser either returns or throws a UsageError, and what it returned
// prints to text that parses to the same again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace regather::fuzz {

// Any other exception, and any failed check, ends the program: a finding.
template <class Parse>
int accepts_or_refuses(const uint8_t* data, size_t size, Parse parse) {
  try {
    parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const UsageError&) {
    return 0;
  }
  return 0;
}

inline void require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace regather::fuzz
