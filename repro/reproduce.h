// Runs an issue's cases and says whether it shows without its fix, and whether the fix repairs it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/result.h"
#include "matrix/runner/runner.h"
#include "repro/entry.h"

namespace regather::repro {

struct Reproduction {
  const Entry* entry = nullptr;
  std::vector<CaseResult> without;
  std::vector<CaseResult> with;
  std::vector<CaseResult> control;
  bool reproduced = false;    // every supported case of `without` fails as a signature of the entry says
  bool repaired = false;      // every supported case of `with` passes
  bool controlled = false;    // every supported case of `control` passes
  bool supported = false;     // any case of `without` is, or there are none
  bool contradicted = false;  // what happened is not what the entry's status says
};

// The same cases with other fixes: what `with` becomes under --fix. Throws UsageError where these fixes are illegal.
std::vector<Case> with_fixes(const std::vector<Case>& cases, const Fixes& fixes);

struct ReproduceOptions {
  std::optional<Fixes> fixes;  // stand in for the entries' own `with`
  std::string model;           // a Hugging Face folder; empty: the card model
  int jobs = 1;                // workers at a time
};

// All entries' cases in one run, each of them once; nullopt when interrupted.
std::optional<std::vector<Reproduction>> reproduce(const std::vector<const Entry*>& entries,
                                                   const ReproduceOptions& options);

nlohmann::ordered_json to_json(const Reproduction& reproduction);
std::string print(const Reproduction& reproduction);

}  // namespace regather::repro
