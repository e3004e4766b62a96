#include "fuzz.h"
#include "matrix/judge/compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const matrix::PastDocument document = matrix::parse_document("fuzzed", text);
    // Nothing regresses against itself.
    const matrix::Comparison comparison = matrix::compare(document, document);
    fuzz::require(!comparison.counts.contains(matrix::Verdict::regression));
    fuzz::require(!comparison.counts.contains(matrix::Verdict::absent));
    matrix::print(comparison);
  });
}
