// A results.json of an earlier run, read back to compare with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "case/result.h"
#include "matrix/verdict.h"

namespace regather::matrix {

struct PastCase {
  CaseResult result;              // less its later departures and counters
  std::vector<Outcome> attempts;  // when there was more than one
  std::optional<Verdict> verdict;
};

struct PastDocument {
  std::string definition;
  size_t asked = 0;  // the cases of its plan
  std::vector<PastCase> cases;
};

// Throws UsageError naming what is wrong and where; a case that stands twice is wrong too. Members that this version
// does not know are left alone.
PastDocument parse_document(const std::string& file, std::string_view json);

}  // namespace regather::matrix
