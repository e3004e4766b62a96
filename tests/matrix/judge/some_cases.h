// Results and entries in few words, for the tests of verdicts.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "case/result.h"
#include "matrix/judge/expectation.h"

namespace regather::matrix {

inline CaseResult ran(const std::string& id, Outcome outcome) {
  CaseResult r;
  r.which = parse_id(id);
  r.outcome = outcome;
  return r;
}

inline CaseResult failed(const std::string& id, Outcome outcome, const std::string& mechanism, Phase phase,
                         const std::string& text = "", const std::string& type = "Error") {
  CaseResult r = ran(id, outcome);
  r.signature = Signature{mechanism, phase, 0, 0, type, text, ""};
  return r;
}

// A file of these entries, each the text of one JSON object.
template <class... Entries>
Expectations expectations(const std::string& definition, const Entries&... entries) {
  std::string list;
  ((list += (list.empty() ? "\n" : ",\n") + std::string(entries)), ...);
  return parse_expectations("mine.json", R"({"schema":1,"about":"a test's","definition":")" + definition +
                                             R"(","expectations":[)" + list + "]}");
}

// The members that every entry has besides.
inline const std::string kRest = R"("issues":["trl#7245"],"reason":"a test","since":"2026-01-31")";

inline std::string entry(const std::string& select, const std::string& outcome, const std::string& signature = "",
                         const std::string& more = "") {
  return R"({"select":")" + select + R"(","outcome":")" + outcome + "\"," +
         (signature.empty() ? "" : "\"signature\":" + signature + ",") + kRest + more + "}";
}

inline const std::string kUnarmed = R"({"mechanism":"reducer_unarmed","phase":"gradients"})";

}  // namespace regather::matrix
