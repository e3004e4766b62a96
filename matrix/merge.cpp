#include "matrix/merge.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/tell.h"
#include "matrix/judge/load.h"
#include "matrix/plan/definition.h"
#include "matrix/plan/plan.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::ordered_json;
using Named = std::pair<std::string, PastDocument>;

// Of hosts that share one plan, these may be different.
constexpr std::array<std::string_view, 5> kOfHost{"os", "kernel", "cpu", "cores", "memory_bytes"};

// One part of the plan: cases index - 1, index - 1 + count, ... of it.
size_t size_of(const Shard& shard, size_t cases) { return (cases + shard.count - shard.index) / shard.count; }

void check_plan(const Named& first, const Named& other) {
  const auto fail = [&](const char* what, const auto& one, const auto& two) {
    throw UsageError(
        fmt::format("'{}' and '{}' are not of one plan: {} {} and {}", first.first, other.first, what, one, two));
  };
  const PastDocument& a = first.second;
  const PastDocument& b = other.second;
  if (a.definition != b.definition) fail("definitions", a.definition, b.definition);
  if (a.hash != b.hash) {
    throw UsageError(fmt::format(
        "'{}' and '{}' are not of one plan: hashes {} and {}; selection, seed, model, device, launcher, fault, version "
        "and stack must be the same",
        first.first, other.first, a.hash, b.hash));
  }
  if (a.shard->count != b.shard->count) fail("shards of", a.shard->count, b.shard->count);
  if (a.selected != b.selected) fail("numbers of cases", a.selected, b.selected);
}

Json merge_environments(const std::vector<Named>& shards) {
  Json merged = shards.front().second.environment;
  for (const auto& [file, shard] : shards) {
    if (shard.environment.size() != merged.size()) {
      throw UsageError(
          fmt::format("'{}' and '{}' were run in environments of other members", shards.front().first, file));
    }
    for (auto& [key, value] : merged.items()) {
      const auto at = shard.environment.find(key);
      if (at != shard.environment.end() && *at == value) continue;
      if (std::ranges::find(kOfHost, key) != kOfHost.end()) {
        value = nullptr;
        continue;
      }
      const std::string other = at == shard.environment.end() ? "none" : at->dump();
      throw UsageError(fmt::format("'{}' and '{}' were run in different environments: {} {} and {}",
                                   shards.front().first, file, key, value.dump(), other));
    }
  }
  return merged;
}

// Whether the document holds every case of the definition that it names; not where that cannot be read here.
bool is_whole(const Document& document) {
  if (document.unreported > 0) return false;
  try {
    const std::vector<Case> all = expand(load_definition(document.definition));
    return std::ranges::equal(all, document.cases, {}, {}, [](const DocumentCase& c) { return c.result.which; });
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace

Merged merge(std::vector<Named> shards) {
  REGATHER_CHECK(!shards.empty(), "merge", "no document");
  std::map<size_t, Named*> by_index;
  for (Named& named : shards) {
    const auto& [file, shard] = named;
    if (!shard.shard) {
      throw UsageError(fmt::format("'{}' is no shard: it was run without --shard and needs no merging", file));
    }
    check_plan(shards.front(), named);
    if (shard.cases.size() != size_of(*shard.shard, shard.selected)) {
      throw UsageError(fmt::format("'{}' has {} cases: shard {}/{} of {} has {}", file, shard.cases.size(),
                                   shard.shard->index, shard.shard->count, shard.selected,
                                   size_of(*shard.shard, shard.selected)));
    }
    const auto [at, added] = by_index.emplace(shard.shard->index, &named);
    if (!added) {
      throw UsageError(fmt::format("shard {}/{} stands twice: '{}' and '{}'", shard.shard->index, shard.shard->count,
                                   at->second->first, file));
    }
  }
  const PastDocument& first = shards.front().second;
  Merged merged;
  merged.environment = merge_environments(shards);
  merged.document.definition = first.definition;
  merged.document.hash = first.hash;
  const size_t count = first.shard->count;
  for (size_t index = 1; index <= std::min(count, first.selected); ++index) {  // the others are empty
    const auto at = by_index.find(index);
    if (at == by_index.end()) {
      merged.missing.push_back(index);
    } else {
      merged.document.seconds += at->second->second.seconds;
    }
  }
  std::unordered_set<std::string> seen;
  for (size_t i = 0; i < first.selected; ++i) {
    const auto at = by_index.find(i % count + 1);
    if (at == by_index.end()) continue;
    PastCase& c = at->second->second.cases[i / count];
    if (const std::string which = id(c.result.which); !seen.insert(which).second) {
      throw UsageError(fmt::format("'{}': '{}' stands twice: another shard has it", at->second->first, which));
    }
    merged.document.cases.push_back({std::move(c.result), std::move(c.line), std::move(c.attempts), c.verdict});
  }
  if (merged.document.cases.empty()) throw UsageError(fmt::format("'{}' holds no case", shards.front().first));
  merged.document.unreported = first.selected - merged.document.cases.size();
  return merged;
}

Exit merge_files(const std::vector<std::string>& files, const std::string& out, const Rules& rules) {
  std::vector<Named> shards;
  for (const std::string& file : files) shards.emplace_back(file, load_document(file, /*with_lines=*/true));
  Merged merged = merge(std::move(shards));
  Document& document = merged.document;
  const CaseResult& first = document.cases.front().result;
  const Judge judge = load_judge(rules, setting_of(merged.environment, first.device, first.stack));
  const Conclusion end = conclude(document, judge, rules, is_whole(document));
  make_folder(out);
  replace_file(out + "/results.json", print_document(document, merged.environment));
  print(end, document, judge, (first.stack == "reference" ? "" : " --stack '" + first.stack + "'") + rules.options(),
        out);
  if (merged.missing.empty()) return end.exit;
  tell("regather: missing: shard {}; {} of {} cases are not reported\n", fmt::join(merged.missing, ", "),
       document.unreported, document.unreported + document.cases.size());
  return end.exit == Exit::red ? Exit::red : Exit::incomplete;
}

}  // namespace regather::matrix
