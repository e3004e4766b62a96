// What a released trainer amounts to in the matrix: the rows of repro/call_paths.json, each found by running the
// trainer or by reading it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "case/case.h"
#include "case/result.h"

namespace regather::check {

struct CallPath {
  std::string package;   // trl; transformers for its own Trainer
  std::string versions;  // ">=1.6.0,<1.9.0", empty: any
  std::string trainer;
  std::string fused;
  Backend backend = Backend::ddp;
  std::optional<Case> which;       // nothing where the trainer failed before it had a call
  bool recomputed = false;         // the head's weight is taken again in backward
  std::optional<Outcome> outcome;  // of the trainer itself: float32, no checkpoint, nothing frozen, two ranks
  std::string phase;
  std::string text;
  bool ran = false;                  // or read
  std::vector<std::string> checked;  // the releases that were run
  std::string note;
};

// Throws UsageError naming the row.
std::vector<CallPath> parse_call_paths(const std::string& name, std::string_view json);

// Those that come with regather.
const std::vector<CallPath>& known_call_paths();

// The rows of a trainer on a backend; with a release of TRL the one that covers it. transformers' own Trainer has one
// way, its model's forward.
std::vector<CallPath> call_paths_of(const std::string& trainer, const std::string& fused, Backend backend,
                                    const std::optional<std::string>& trl);

// Of the releases of TRL that these rows know: whether all of `versions` lie in `rule`, and whether two ranges share
// one.
bool within(const std::string& versions, const std::string& rule);
bool overlap(const std::string& a, const std::string& b);

}  // namespace regather::check
