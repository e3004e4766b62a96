// `regather bench diagnose`: how fast a long log is read, and in how much memory.
#pragma once

#include <string>

#include "matrix/results/verdict.h"

namespace regather::repro {

struct SpeedOptions {
  std::string out;       // the folder in which the log is made, and taken away again
  int mebibytes = 1024;  // of the log
  bool json = false;
};

// Red below 200 MB/s, above 64 MiB of memory, or where the bug at the log's end is not found.
matrix::Exit measure_diagnose(const SpeedOptions& options);

}  // namespace regather::repro
