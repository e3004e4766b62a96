// Runs an issue's cases and says whether it shows without its fix, and whether the fix repairs it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/result.h"
#include "matrix/runner.h"
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
  bool supported = false;     // any case of `without` is
  bool contradicted = false;  // what happened is not what the entry's status says
};

// The same cases with other fixes: what `with` becomes under --fix. Throws UsageError where these fixes are illegal.
std::vector<Case> with_fixes(const std::vector<Case>& cases, const Fixes& fixes);

// All entries' cases on one worker, since starting it costs more than the cases; nullopt when interrupted. `fixes`
// stand in for those of the entries' own `with`.
std::optional<std::vector<Reproduction>> reproduce(const std::vector<const Entry*>& entries,
                                                   const std::optional<Fixes>& fixes);

nlohmann::ordered_json to_json(const Reproduction& reproduction);
std::string print(const Reproduction& reproduction);

}  // namespace regather::repro
