#include <nlohmann/json.hpp>

#include "case/result.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) return;
    // Texts that are no UTF-8 are written with replacements, so that only the second round must be the same.
    const std::string line = to_line(result_from_json(json));
    fuzz::require(to_line(result_from_json(nlohmann::json::parse(line))) == line);
  });
}
