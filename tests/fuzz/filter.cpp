#include "matrix/plan/filter.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const matrix::Filter filter = matrix::parse_filter(text);
    const matrix::Filter opposite = matrix::parse_filter("!(" + std::string(text) + ")");
    for (const Case& c : {Case{}, Case{.backend = Backend::zero3, .frozen = Frozen::norms, .fixes = {"gather"}}}) {
      fuzz::require(filter(c) != opposite(c));
    }
  });
}
