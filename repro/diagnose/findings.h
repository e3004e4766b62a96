// What one reading of the logs has found, before anything is concluded from it. Bounded, however long the logs are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "repro/diagnose/recompute.h"

namespace regather::repro {

struct LineRef {
  std::string log;  // its path
  uint64_t line = 0;
  std::string text;  // cut to a few hundred bytes
};

struct SeenVersion {
  std::string package;
  std::string version;
  LineRef at;
};

struct SeenContext {
  size_t context = 0;  // its number in Knowledge
  LineRef at;
};

// An error, or a text that one of the signatures knows.
struct Incident {
  LineRef at;
  uint64_t last_line = 0;  // of its message
  std::string source;      // which rank wrote it, as far as prefixes tell
  std::string type;        // of the exception; empty where a text only stands in a line
  std::string message;     // with the type, cut
  bool traceback = false;
  bool truncated = false;        // the log ends inside its traceback
  bool ignored = false;          // "Exception ignored in"
  bool chained = false;          // came while another was handled, or of it
  uint64_t progress_before = 0;  // the last line of progress that the same source wrote before it
  std::vector<size_t> signs;     // that match its message; numbers in Knowledge
  Recomputed recompute = Recomputed::absent;
  std::vector<SeenContext> near;  // in its traceback and message
  uint64_t repeats = 0;           // incidents after it with the same text
};

struct Findings {
  std::vector<SeenVersion> versions;
  std::vector<SeenContext> contexts;  // the first of each
  std::vector<Incident> incidents;    // in the order of the logs and their lines
  uint64_t bytes = 0;
  uint64_t lines = 0;
  std::vector<std::string> cut;  // logs whose gzip stream ends early
};

}  // namespace regather::repro
