// What cases should do, as data:
//
//   {"schema":1, "about":TEXT, "definition":NAME, "complete"?:BOOL, "expectations":[
//     {"select":FILTER or "case":ID, "outcome":..., "signature":{"mechanism", "phase", "type"?, "text"?},
//      "issues":[...], "reason":TEXT, "since":DATE, "review_by"?:DATE,
//      "when"?:{"versions", "world", "device", "stack"}}...]}
//
// "definition" is the plan that the entries are about: run as a whole, each must select something of it. "complete":
// nothing of it is left to what the default rules let pass: each of its cases with fewer fixes than recommended must be
// selected, whether it passes or not, so that an entry that is lost or narrowed shows. "mechanism" may be null: none
// was established. "type" is compared as it is; "text" is a regular expression (RE2), searched in the signature's text.
// Dates are YYYY-MM-DD. A failure of a worker (hang, crash, oom, unchecked) needs no signature; a pass has none. "when"
// is of conditions.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "case/result.h"
#include "matrix/judge/conditions.h"
#include "matrix/plan/filter.h"

namespace re2 {
class RE2;
}

namespace regather::matrix {

struct ExpectedSignature {
  std::string mechanism;  // empty: none was established
  Phase phase = Phase::build;
  std::string type;                         // empty: any
  std::string text;                         // empty: any
  std::shared_ptr<const re2::RE2> pattern;  // of the text, when there is one
  bool matches(const Signature& signature) const;
};

struct Expectation {
  std::string where;     // "FILE:LINE (entry 2, 'backend=ddp')", for people to find it
  std::string selector;  // the filter or the id
  Filter selects;
  Outcome outcome = Outcome::pass;
  std::optional<ExpectedSignature> signature;
  std::vector<std::string> issues;
  std::string reason;
  std::string since;
  std::string review_by;  // empty: never
  Conditions when;

  // Whether the result is what it says; a signature is asked for where it gives one.
  bool met_by(const CaseResult& result) const;
};

struct Expectations {
  std::string file;
  std::string about;
  std::string definition;
  bool complete = false;
  std::vector<Expectation> entries;
  // With `complete`, the ids of the definition's cases with fewer fixes than recommended; load_expectations() fills it.
  std::unordered_set<std::string> to_cover{};
};

// Throws UsageError naming the file, the line and the entry; `file` stands in its text.
Expectations parse_expectations(const std::string& file, std::string_view json);

// "error in forward [head_read_partitioned], text /vec \(0\)/".
std::string print_expected(const Expectation& expectation);

}  // namespace regather::matrix
