#include "fuzz.h"
#include "repro/check/tree.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    fuzz::require(check::values_in(check::parse_yaml("fuzzed", text).root) <= 200000);
  });
}
