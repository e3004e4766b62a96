// An issue of the register: what it is, how it shows, and the cases that show it. Read from repro/register/*.json:
//
//   {"schema":1, "id":"deepspeed#8130", "aliases":[...], "title":..., "status":..., "why":..., "mechanisms":[...],
//    "axes":{AXIS:[VALUE...]}, "versions":[{"package", "range", "cause", "source":"cited|measured"}...], "symptom":...,
//    "upstream"?:TEXT, "signatures":[{"outcome", "phase", "mechanism", "type", "text"}...],
//    "logs":[{"signature":NAME, "tells":[...]}...], "workarounds":[{"what", "price"}...], "references":[...],
//    "cases":{"without":[ID...], "with":[ID...], "control":[ID...]}}
//
// reports/schema/register.schema.json says the same to other tools.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "case/case.h"
#include "case/result.h"
#include "matrix/judge/conditions.h"

namespace regather::repro {

// reproduced: fails without its fix and passes with it. recognised: nothing here runs it, but diagnose knows its text.
// refuted: does not fail. open: no case shows it here, or one fails and no fix is known; `why` says which and why.
enum class Status { reproduced, recognised, refuted, open };
const char* name(Status status);

// How the failure shows in a result: what is given must hold; `text` is a part of the signature's text.
struct Pattern {
  std::optional<Outcome> outcome;
  std::optional<Phase> phase;
  std::string mechanism;
  std::string type;
  std::string text;
  bool matches(const CaseResult& result) const;
};

// Releases that have the bug. Of one package any range may hold; every package that is named must have one that does.
struct VersionClaim {
  std::string package;
  std::string range;  // as in ">=0.18.5,<0.19.3"
  matrix::VersionRange parsed;
  std::string cause;  // what these releases do
  bool measured = false;
};

struct Workaround {
  std::string what;
  std::string price;
};

// How the failure shows in a log: a signature of repro/diagnose, and what tells this issue from others that have it.
struct LogSign {
  std::string signature;
  std::vector<std::string> tells;
};

struct Entry {
  std::string id;
  std::vector<std::string> aliases;
  std::string title;
  Status status = Status::open;
  std::string why;                      // of the status
  std::vector<std::string> mechanisms;  // the main one first; empty: none was established
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;  // where the bug lives
  std::vector<VersionClaim> versions;
  std::string symptom;
  std::string upstream;  // what the report quotes of the error; empty: silent
  std::vector<Pattern> signatures;
  std::vector<LogSign> logs;
  std::vector<Workaround> workarounds;
  std::vector<std::string> references;
  std::vector<Case> without;  // show the bug
  std::vector<Case> with;     // the same with its fix, one for each of them
  std::vector<Case> control;  // neighbours that pass
};

// Throws UsageError naming the member at fault; `name` stands in its text.
Entry parse_entry(const std::string& name, std::string_view json);

// What `with` has that `without` has not: "gather+redirect", "checkpoint=nonreentrant".
std::string repair(const Case& without, const Case& with);

}  // namespace regather::repro
