#include "base/error.h"

#include <utility>

namespace regather {

Error::Error(std::string domain, const std::string& text, std::string_view file, int line)
    : std::runtime_error(text), domain_(std::move(domain)) {
  if (!file.empty()) where_ = fmt::format("{}:{}", file, line);
}

}  // namespace regather
