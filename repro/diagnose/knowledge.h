// What diagnose knows of logs, as data (repro/diagnose/knowledge.json):
//
//   {"schema":1,
//    "mechanisms":{NAME:TEXT...}, "contexts":[{"name", "what", "match"}...],
//    "versions":[{"match"}...], "advice":[{"when":[CONTEXT...], "collect":TEXT}...],
//    "signatures":[{"name", "kind":"error|warning|symptom", "mechanism"?, "match", "recompute"?, "multiple"?,
//      "near"?:[[CONTEXT...]...], "needs"?:[[CONTEXT...]...], "unless"?:[CONTEXT...],
//      "confidence", "alone", "bare"}...]}
//
// Matches are regular expressions (RE2), searched in a line or a message of several. Each must hold a literal of five
// bytes or more, by which a log is searched at speed.
#pragma once

#include <re2/re2.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "repro/diagnose/recompute.h"

namespace regather::repro {

// A regular expression, and literals of which every match holds at least one.
struct Sought {
  std::string text;
  std::shared_ptr<const re2::RE2> pattern;
  std::vector<std::string> literals;

  bool in(std::string_view line) const;
};

// Something about a run that a log may tell: "ZeRO stage 3", "a DPO trainer".
struct Context {
  std::string name;
  std::string what;
  Sought match;
};

using ContextSets = std::vector<std::vector<size_t>>;  // of each set, one must be there; numbers of contexts

enum class SignKind {
  error,    // may be a first cause
  warning,  // says something of a run that goes on
  symptom   // what other ranks say once one has failed
};

struct Sign {
  std::string name;
  SignKind kind = SignKind::error;
  std::string mechanism;  // empty for a symptom that tells nothing
  Sought match;
  Recomputed recompute = Recomputed::unasked;  // how the recomputed metadata must differ
  bool multiple = false;                       // the match's second number must be a multiple of its first
  ContextSets near;                            // in the traceback or the message
  ContextSets needs;                           // anywhere in the log or a config
  std::vector<size_t> unless;                  // in the traceback or the message
  double confidence = 0;                       // with all of them
  double alone = 0;                            // a traceback or a whole log without them
  double bare = 0;                             // a text without traceback or context to judge by
};

struct Advice {
  std::vector<size_t> when;  // any of these contexts; empty: always
  std::string collect;
};

struct Knowledge {
  std::vector<std::pair<std::string, std::string>> mechanisms;  // what each is, in two sentences
  std::vector<Context> contexts;
  std::vector<Sought> versions;  // two groups: package, version
  std::vector<Advice> advice;
  std::vector<Sign> signs;

  const std::string& about(std::string_view mechanism) const;  // empty when nothing is said
  const Sign* find_sign(std::string_view name) const;
};

// Throws UsageError naming what is at fault.
Knowledge parse_knowledge(std::string_view json);

// That which comes with regather, checked against the register: every signature and context that an entry names is
// there, and the entry has the signature's mechanism.
const Knowledge& knowledge();

}  // namespace regather::repro
