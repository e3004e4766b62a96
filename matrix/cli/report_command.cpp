#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "matrix/cli/commands.h"
#include "matrix/cli/reporting.h"
#include "matrix/results/document.h"
#include "reports/ctrf.h"
#include "reports/github.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/sarif.h"

namespace regather::cli {
namespace {

using matrix::Exit;
using reports::Report;

// Whole, or not at all; "-" is standard output.
void write_to(const std::string& path, const std::string& text) {
  if (path != "-") {
    matrix::make_folder(std::filesystem::absolute(path).parent_path().string());
    return replace_file(path, text);
  }
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error("output", "cannot write to standard output");
  }
}

struct Format {
  const char* flag;
  const char* about;
  std::function<std::string(const Report&)> write;
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all{
      {"--junit", "JUnit XML", reports::junit},
      {"--ctrf", "CTRF, a JSON report of tests", reports::ctrf},
      {"--sarif", "SARIF 2.1.0", reports::sarif},
      {"--markdown", "The support table in Markdown", reports::markdown},
      {"--summary", "A GitHub step summary: the verdict, the table, the red cases", reports::step_summary},
      {"--annotations", "GitHub workflow commands for the red cases, at most 10", reports::annotations}};
  return all;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("report", "Write a results.json in other formats");
  const auto document = std::make_shared<std::string>();
  const auto page = std::make_shared<std::string>();
  const auto baseline = std::make_shared<std::string>();
  const auto files = std::make_shared<std::vector<std::string>>(formats().size());
  command->add_option("document", *document, "A results.json")->required();
  command->add_option("--html", *page, "The page: one file, without network")->type_name("FILE");
  command->add_option("--baseline", *baseline, "An earlier results.json, for the page to compare with")
      ->type_name("FILE");
  for (size_t i = 0; i < formats().size(); ++i) {
    command->add_option(formats()[i].flag, (*files)[i], formats()[i].about)->type_name("FILE");
  }
  command->callback([&action, document, page, baseline, files] {
    action = [document, page, baseline, files] {
      if (page->empty() && std::ranges::all_of(*files, &std::string::empty)) {
        std::string flags = "--html";
        for (const Format& format : formats()) flags += fmt::format(", {}", format.flag);
        throw UsageError(fmt::format("report: nothing to write; expected one of {}", flags));
      }
      const Report report = read_report(*document);
      if (!page->empty()) write_to(*page, page_of(report, *baseline));
      for (size_t i = 0; i < formats().size(); ++i) {
        if (!(*files)[i].empty()) write_to((*files)[i], formats()[i].write(report));
      }
      return Exit::green;
    };
  });
}

}  // namespace regather::cli
