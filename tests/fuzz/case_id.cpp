#include "case/case.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const Case c = parse_id(text);
    fuzz::require(parse_id(id(c)) == c);
    fuzz::require(!illegal(c));
  });
}
