#include "matrix/cli/reporting.h"

#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/file.h"
#include "matrix/judge/compare.h"
#include "matrix/judge/load.h"
#include "reports/html/html.h"
#include "repro/known_as.h"

namespace regather::cli {
namespace {

// The issues of the register that a failure is an instance of.
std::vector<reports::Issue> issues_of(const CaseResult& result) {
  std::vector<reports::Issue> issues;
  for (const repro::Entry* entry : repro::known_as(result)) {
    issues.push_back({entry->id, entry->title, entry->references.empty() ? "" : entry->references.front()});
  }
  return issues;
}

int64_t written_at(const std::string& file) {
  std::error_code ignored;
  const auto time = std::chrono::file_clock::to_sys(std::filesystem::last_write_time(file, ignored));
  return ignored ? 0 : std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

reports::Report read_report(const std::string& file) {
  return reports::make_report(file, matrix::load_document(file, true), issues_of, written_at(file));
}

std::string page_of(const reports::Report& report, const std::string& baseline) {
  std::optional<reports::Before> before;
  if (!baseline.empty()) {
    before.emplace(baseline, matrix::compare(matrix::load_document(baseline), matrix::load_document(report.file)));
  }
  return reports::html(report, before);
}

void write_page(const std::string& out, const std::string& baseline) {
  const reports::Report report = read_report(out + "/results.json");
  replace_file(out + "/report.html", page_of(report, baseline));
}

}  // namespace regather::cli
