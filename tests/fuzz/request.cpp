#include "fuzz.h"
#include "matrix/runner/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const matrix::Request request = matrix::parse_request(text);
    fuzz::require(matrix::parse_request(matrix::print_request(request)) == request);
  });
}
