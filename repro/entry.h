// An issue of the register: what it is, how it shows, and the cases that show it. Read from repro/register/*.json:
//
//   {"schema":1, "id":"deepspeed#8130", "aliases":[...], "title":..., "status":"fixed|open|refuted", "mechanism":...,
//    "axes":{AXIS:[VALUE...]}, "versions":..., "symptom":...,
//    "signatures":[{"outcome":..., "phase":..., "mechanism":..., "type":..., "text":...}...],
//    "workarounds":[...], "references":[...], "cases":{"without":[ID...], "with":[ID...], "control":[ID...]}}
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "case/case.h"
#include "case/result.h"

namespace regather::repro {

// fixed: fails without its fix and passes with it. open: fails, and no fix is known here. refuted: does not fail.
enum class Status { fixed, open, refuted };
const char* name(Status status);

// How the failure shows: what is given must hold; `text` is a part of the signature's text.
struct Pattern {
  std::optional<Outcome> outcome;
  std::optional<Phase> phase;
  std::string mechanism;
  std::string type;
  std::string text;
  bool matches(const CaseResult& result) const;
};

struct Entry {
  std::string id;
  std::vector<std::string> aliases;
  std::string title;
  Status status = Status::open;
  std::string mechanism;
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;  // where the bug lives
  std::string versions;
  std::string symptom;
  std::vector<Pattern> signatures;
  std::vector<std::string> workarounds;
  std::vector<std::string> references;
  std::vector<Case> without;  // show the bug
  std::vector<Case> with;     // the same with its fix
  std::vector<Case> control;  // neighbours that pass with and without
};

// Throws UsageError naming the member at fault; `name` stands in its text.
Entry parse_entry(const std::string& name, std::string_view json);

// The entries that come with regather, by id.
const std::vector<Entry>& known_entries();

// By id or alias, whatever their case; throws UsageError naming the known ones.
const Entry& find_entry(std::string_view id);

}  // namespace regather::repro
