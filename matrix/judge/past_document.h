// A results.json of an earlier run, read back to compare with it or to merge it with others.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "case/result.h"
#include "matrix/plan/plan.h"
#include "matrix/results/verdict.h"

namespace regather::matrix {

struct PastCase {
  CaseResult result;              // less its later departures and counters
  std::vector<Outcome> attempts;  // when there was more than one
  std::optional<Verdict> verdict;
  std::string line{};  // of cases.jsonl, where it was asked for
};

struct PastDocument {
  std::string definition;
  size_t asked = 0;  // the cases of its plan
  std::vector<PastCase> cases;
  nlohmann::ordered_json environment = nlohmann::ordered_json::object();
  std::string hash{};
  std::optional<Shard> shard{};  // of a divided plan
  size_t selected = 0;           // that plan's cases before the division
  double seconds = 0;
};

// Throws UsageError naming what is wrong and where; a case that stands twice is wrong too. Members that this version
// does not know are left alone.
PastDocument parse_document(const std::string& file, std::string_view json, bool with_lines = false);

}  // namespace regather::matrix
