#include "repro/diagnose/diagnose.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "repro/diagnose/log_source.h"
#include "repro/diagnose/scan.h"

namespace regather::repro {
namespace {

constexpr size_t kLargestConfig = 1 << 20;

}  // namespace

Findings read_logs(const DiagnoseOptions& options) {
  if (std::ranges::count(options.logs, "-") > 1) throw UsageError("'-', standard input, stands twice: it is read once");
  Scanner scanner(knowledge());
  for (const std::string& config : options.configs) scanner.scan_config(config, read_file(config, kLargestConfig));
  for (const std::string& log : options.logs) {
    LogSource source(log);
    scanner.scan(log, [&](char* to, size_t size) { return source.read(to, size); });
    if (source.damaged()) scanner.findings().cut.push_back(log);
  }
  return std::move(scanner.findings());
}

}  // namespace regather::repro
