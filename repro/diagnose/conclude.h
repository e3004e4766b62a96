// From what was found in the logs to issues of the register, each with how sure that is and why.
#pragma once

#include <string>
#include <vector>

#include "repro/diagnose/findings.h"
#include "repro/diagnose/knowledge.h"
#include "repro/entry.h"

namespace regather::repro {

// From here on a cause counts as known.
constexpr double kKnown = 0.5;

// A package of the entry's version claims that the logs name.
struct VersionNote {
  std::string package;
  std::string ranges;  // of the claims, joined by " or "
  const SeenVersion* seen = nullptr;
  bool affected = false;
};

struct Candidate {
  const Entry* entry = nullptr;
  const Sign* sign = nullptr;
  double confidence = 0;
  std::vector<LineRef> evidence;     // the error first, then the contexts that the signature and the entry ask for
  double told = 0;                   // by how much the logs single this entry out: its rarer tells count more
  std::vector<std::string> missing;  // what the entry's tells ask for and no line says
  std::vector<VersionNote> versions;
};

struct Diagnosis {
  std::vector<Candidate> candidates;  // best first
  bool unknown = true;
  const Incident* first = nullptr;   // the first cause, known or not; null when the logs hold no error
  std::vector<std::string> notes;    // why it is not known, what else stands there
  std::vector<std::string> collect;  // what would tell more
};

// The findings must outlive the diagnosis.
Diagnosis conclude(const Knowledge& knowledge, const std::vector<Entry>& entries, const Findings& findings);

}  // namespace regather::repro
