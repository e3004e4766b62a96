// Data files compiled into a program (cmake/Embed.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace regather {

struct EmbeddedFile {
  std::string_view name;  // the file's stem
  std::string_view text;
};

}  // namespace regather
