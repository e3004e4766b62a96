// results.json: what ran, where, and the deciding line of every case.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/result.h"
#include "matrix/results/verdict.h"

namespace regather::matrix {

// One case of a document.
struct DocumentCase {
  CaseResult result;
  std::string line;                  // its line of cases.jsonl
  std::vector<Outcome> attempts;     // added to the line when there was more than one
  std::optional<Verdict> verdict{};  // added to the line where there were expectations or a baseline
};

struct Document {
  std::string definition;
  std::string hash;
  std::string shard;    // "2/4", empty when undivided
  size_t selected = 0;  // the plan's cases before the division
  std::vector<DocumentCase> cases;
  size_t unreported = 0;  // cases of the plan of which nothing is known
  size_t absent = 0;      // cases of the baseline that the plan does not hold, for the totals
  double seconds = 0;
};

// One case a line, so that two documents can be compared by eye and by diff.
std::string print_document(const Document& document, const nlohmann::ordered_json& environment);

// Makes the folder that it goes into. Throws UsageError.
void make_folder(const std::string& out);

}  // namespace regather::matrix
