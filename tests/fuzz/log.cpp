#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "repro/diagnose/conclude.h"
#include "repro/diagnose/report.h"
#include "repro/diagnose/scan.h"
#include "repro/register.h"

// The log reader: any bytes, handed over in parts whose size the first byte gives.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    const size_t part = text.empty() ? 1 : 1 + static_cast<unsigned char>(text[0]);
    repro::Scanner scanner(repro::knowledge());
    size_t at = 0;
    scanner.scan("fuzzed", [&](char* to, size_t room) {
      const size_t count = std::min({room, part, text.size() - at});
      std::memcpy(to, text.data() + at, count);
      at += count;
      return count;
    });
    scanner.scan_config("fuzzed", text);
    const repro::Findings& findings = scanner.findings();
    fuzz::require(findings.bytes == text.size());
    const repro::Diagnosis d = repro::conclude(repro::knowledge(), repro::known_entries(), findings);
    for (const repro::Candidate& c : d.candidates) fuzz::require(c.confidence >= 0 && c.confidence <= 1);
    fuzz::require(!repro::print(repro::knowledge(), d).empty());
    // Whatever bytes the log has, what is told of it is UTF-8: dump throws otherwise.
    repro::to_json(repro::knowledge(), d, findings).dump();
  });
}
