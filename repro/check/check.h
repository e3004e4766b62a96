// Whether configuration files make a training run that computes the right gradients, answered from measured cells.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "repro/check/evidence.h"
#include "repro/check/setting.h"

namespace regather::check {

// contradictory: no answer fails, but the files do not fit together, or a tool refuses them: no run of theirs begins,
// or not the one that is meant. Only of a whole check.
enum class Verdict { works, crashes, silently_wrong, unknown, contradictory };
const char* name(Verdict verdict);

// cell: a measured cell. trainer: the trainer itself was run. read: the trainer's own check, read in its source.
enum class Basis { none, cell, trainer, read };
const char* name(Basis basis);

// Something that makes the run right, measured like the answer itself or known to the register.
struct Remedy {
  std::string what;
  std::string price;
  std::string by;  // the case that passes, or the issue that names it
};

// What an answer rests on.
struct Proof {
  Basis basis = Basis::none;
  std::string source;        // the recording, the document, the trainer's releases, or the file that was read
  std::string release;       // of the package that decides there: "deepspeed 0.19.2"; empty where it is not known
  std::optional<Case> cell;  // that answered; another than the answer's case where `differences` says in what
  std::vector<Difference> differences;
};

// What happens with these releases.
struct Answer {
  std::string versions;  // of TRL, as in ">=1.9.0,<1.14.0"; empty: any
  Verdict verdict = Verdict::unknown;
  std::optional<Case> which;
  std::vector<Proof> proofs;
  std::string phase;
  std::string mechanism;
  std::string type;
  std::string text;  // its first line
  std::vector<Assumption> assumed;
  std::vector<Remedy> remedies;
  std::vector<std::string> issues;
  std::string reason;   // of unknown
  std::string command;  // of unknown: what measures it
};

struct Checked {
  std::vector<std::pair<std::string, Kind>> files;
  Setting setting;
  std::vector<Answer> answers;  // by release, the oldest first
  // The worst of the answers, one that fails before contradictory, that before unknown, unknown before works.
  Verdict verdict = Verdict::unknown;
  bool problem() const;  // a finding or an answer that is one
};

// `measured` holds the cells that answer. Throws UsageError.
Checked check(std::vector<File> files, const std::vector<Measured>& measured);

nlohmann::ordered_json to_json(const Checked& checked);
std::string print(const Checked& checked);

}  // namespace regather::check
