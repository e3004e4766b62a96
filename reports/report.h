// A results.json as every writer of reports sees it: each case with what is to be said of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "matrix/judge/past_document.h"

namespace regather::reports {

// A public issue that a failure is known by.
struct Issue {
  std::string id;       // "deepspeed#8130"
  std::string title;    // in our words
  std::string address;  // of the report, may be empty
  bool operator==(const Issue&) const = default;
};

struct Item {
  matrix::PastCase of;
  bool red = false;                 // by the verdict that stands in the document, else by the default rules
  std::string failure;              // in one line; empty when there is nothing wrong with it
  std::vector<std::string> issues;  // ids
  std::optional<size_t> repaired;   // of the same case's items that pass, that with the fewest fixes
};

struct Report {
  std::string file;               // the document's name
  matrix::PastDocument document;  // less its cases
  std::vector<Item> items;
  std::vector<Issue> issues;  // that the items name, each once, by id
  size_t missing = 0;         // cases that the plan asked for and the document lacks
  int64_t ended = 0;          // when the document was written, milliseconds since 1970
};

using IssuesOf = std::function<std::vector<Issue>(const CaseResult&)>;

// `ended`: as in Report.
Report make_report(const std::string& file, matrix::PastDocument document, const IssuesOf& issues_of, int64_t ended);

// Whether the case did something that a right one does not: all but pass, unsupported and notrun.
bool failed(const CaseResult& result);

// "600 cases on cpu: without fixes 120 pass, 60 compute wrong gradients without an error and 120 end in an error; with
// the recommended fixes all 300 pass." And what is red.
std::string verdict_sentence(const Report& report);

// The command that runs the case again, as one line for a shell.
std::string rerun_command(const Report& report, const CaseResult& result);

}  // namespace regather::reports
