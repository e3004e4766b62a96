#include "fuzz.h"
#include "matrix/judge/judge.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    CaseResult result;
    result.outcome = Outcome::error;
    result.signature = Signature{"mixed_dtype", Phase::forward, 0, 0, "Error", "m1 and m2", ""};
    const matrix::Judge judge(matrix::parse_expectations("fuzzed", text), std::nullopt,
                              {.versions = {{"torch", "2.11.0"}}});
    judge.of(result, {});
    judge.complaints({result.which}, "card", true);
  });
}
