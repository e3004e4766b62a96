#include "fuzz.h"
#include "repro/check/launch.h"
#include "repro/check/shell.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const auto words = check::find_launch("fuzzed", text);
    if (!words) return;
    fuzz::require(!words->empty());
    fuzz::require(!check::parse_launch("fuzzed", *words).launcher.empty());
  });
}
