// A regular expression that stands in the code: a mistake in it is one of regather.
#pragma once

#include <re2/re2.h>

#include "base/error.h"

namespace regather::repro {

class FixedPattern : public re2::RE2 {
 public:
  explicit FixedPattern(const char* text) : re2::RE2(text, re2::RE2::Quiet) {
    REGATHER_CHECK(ok(), "diagnose", "'{}' is no regular expression: {}", text, error());
  }
};

}  // namespace regather::repro
