// `regather diagnose`: from logs to an answer.
#pragma once

#include <string>
#include <vector>

#include "repro/diagnose/conclude.h"
#include "repro/diagnose/findings.h"

namespace regather::repro {

struct DiagnoseOptions {
  std::vector<std::string> logs;  // paths; "-" is standard input
  std::vector<std::string> configs;
};

// Throws UsageError where a file cannot be read, or standard input is named twice.
Findings read_logs(const DiagnoseOptions& options);

}  // namespace regather::repro
