// The documents of the shards of one plan, put together to that of one run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "matrix/judge/conclusion.h"
#include "matrix/judge/past_document.h"
#include "matrix/results/document.h"

namespace regather::matrix {

struct Merged {
  Document document;                   // cases in the plan's order, without those of missing shards
  nlohmann::ordered_json environment;  // what may differ between hosts (processor, memory, ...) is null where it does
  std::vector<size_t> missing;         // shards
};

// `shards`: each with the file that it came from, read with its lines. Throws UsageError naming the files where one is
// no shard, two are the same, or they are not of one plan, run by one version in one environment.
Merged merge(std::vector<std::pair<std::string, PastDocument>> shards);

// Merges these files into results.json in `out`, judges it and says what it came to, as a run does: incomplete where
// shards are missing and nothing is red. Without rules the verdicts stay that the shards have.
Exit merge_files(const std::vector<std::string>& files, const std::string& out, const Rules& rules);

}  // namespace regather::matrix
