// Reports of documents, with the register's issues: for the commands that write them.
#pragma once

#include <string>

#include "reports/report.h"

namespace regather::cli {

// Throws UsageError where the file is no document.
reports::Report read_report(const std::string& file);

// The page, beside the document `baseline` where one is named.
std::string page_of(const reports::Report& report, const std::string& baseline);

// report.html beside the results.json in `out`.
void write_page(const std::string& out, const std::string& baseline);

}  // namespace regather::cli
