#include "fuzz.h"
#include "repro/entry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const repro::Entry entry = repro::parse_entry("fuzzed", text);
    fuzz::require(entry.status != repro::Status::reproduced || entry.with.size() == entry.without.size());
    for (const Case& c : entry.without) fuzz::require(!illegal(c));
  });
}
