#include "matrix/plan/definition.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) { matrix::parse_definition("fuzzed", text); });
}
