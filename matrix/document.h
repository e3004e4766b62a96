// results.json: what ran, where, and the deciding line of every case.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "case/result.h"

namespace regather::matrix {

// One case of a document.
struct DocumentCase {
  CaseResult result;
  std::string line;               // its line of cases.jsonl
  std::vector<Outcome> attempts;  // added to the line when there was more than one
};

struct Document {
  std::string definition;
  std::string hash;
  std::string shard;  // "2/4", empty when undivided
  std::vector<DocumentCase> cases;
  double seconds = 0;
};

// One case a line, so that two documents can be compared by eye and by diff.
std::string print_document(const Document& document, const nlohmann::ordered_json& environment);

}  // namespace regather::matrix
