// The committed document of every outcome and verdict, as a report.
#pragma once

#include "base/file.h"
#include "reports/report.h"

namespace regather::reports {

inline const std::string kMixed = REGATHER_SOURCE_DIR "/tests/reports/documents/mixed.json";

inline std::vector<Issue> some_issues(const CaseResult& result) {
  if (!result.signature || result.signature->mechanism != "head_read_partitioned") return {};
  return {{"liger#1", "A head that is empty", "https://example.org/liger/1"}, {"trl#2", "No address | a bar", ""}};
}

inline Report report_of(const std::string& json) {
  return make_report("results.json", matrix::parse_document("results.json", json, true), some_issues,
                     1'700'000'012'500);
}

inline Report mixed_report() { return report_of(read_file(kMixed, 1 << 20)); }

}  // namespace regather::reports
