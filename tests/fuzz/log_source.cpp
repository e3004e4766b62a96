#include "repro/diagnose/log_source.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

// Decompression: any bytes behind gzip's first two.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regather;
  static const int file = memfd_create("log", 0);
  fuzz::require(file >= 0);
  return fuzz::accepts_or_refuses(data, size, [](std::string_view text) {
    fuzz::require(ftruncate(file, 0) == 0 && pwrite(file, "\x1f\x8b", 2, 0) == 2);
    fuzz::require(pwrite(file, text.data(), text.size(), 2) == static_cast<ssize_t>(text.size()));
    repro::LogSource source("/proc/self/fd/" + std::to_string(file));
    static char part[1 << 16];
    for (size_t total = 0; total < (size_t{64} << 20);) {
      const size_t got = source.read(part, sizeof(part));
      fuzz::require(got <= sizeof(part));
      if (got == 0) break;
      total += got;
    }
  });
}
