// What happened to a case: the line of cases.jsonl, in the shape that interfaces.md fixes.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "case/case.h"

namespace regather {

enum class Outcome {
  pass,
  wrong_gradient,
  nonfinite,
  error,
  hang,
  crash,
  oom,
  invariant,
  unsupported,
  unchecked,
  notrun
};
enum class Phase { build, forward, backward, gradients, step, invariant };

const char* name(Outcome outcome);
const char* name(Phase phase);
Outcome parse_outcome(std::string_view text);  // throws UsageError
Phase parse_phase(std::string_view text);      // throws UsageError

// Where a failure showed, as far as that is known.
struct Where {
  std::string module;      // in whose forward, recompute or backward
  std::string parameter;   // read last there; of wrong gradients, that which backward reaches first
  std::string collective;  // that the rank entered last, "all_gather #12"; before the gradients were compared
  bool operator==(const Where&) const = default;
};

// What kind of failure it was. `text` is normalised (addresses and pointers removed); `upstream` is the text that the
// real package prints for the same failure, where it differs from ours.
struct Signature {
  std::string mechanism;  // a mechanism id of interfaces.md, empty when none was established
  Phase phase = Phase::build;
  int step = 0;
  int rank = 0;
  std::string type;
  std::string text;
  std::string upstream;
  Where where{};
  bool operator==(const Signature&) const = default;
};

// One departure from the reference on one rank.
struct Departure {
  Outcome outcome = Outcome::error;
  Signature signature;
  bool operator==(const Departure&) const = default;
};

// The comparison of every trainable parameter's gradient over ranks and steps; the worst one is named.
struct GradientSummary {
  int compared = 0;
  std::string worst;  // the parameter's name
  double relative_l2 = 0;
  double cosine = 1;
  double tolerance = 0;
  double share = 0;  // relative_l2 / tolerance
  double max_abs = 0;
  std::vector<int64_t> at;  // the coordinate of max_abs
  double got = 0;
  double want = 0;
  int missing = 0;     // trainable parameters without gradient
  int unexpected = 0;  // gradients on frozen parameters
  int nonfinite = 0;   // non-finite gradient entries
  bool operator==(const GradientSummary&) const = default;
};

struct LossPair {
  double got = 0;
  double want = 0;
  bool operator==(const LossPair&) const = default;
};

struct CaseResult {
  Case which;
  std::string device = "cpu";
  std::string stack = "reference";
  int attempt = 1;
  Outcome outcome = Outcome::notrun;
  std::optional<Signature> signature;  // of the earliest departure: by step, then phase, then lowest rank
  std::vector<Departure> also;         // later departures and those of other ranks
  std::optional<GradientSummary> gradients;
  std::optional<LossPair> loss;
  std::map<std::string, double> counters;
  double milliseconds = 0;
  std::optional<int64_t> peak_bytes;
  std::string reason;  // for unsupported and notrun
};

// Members in the order of interfaces.md; a number that is not finite is written as null and read back as NaN.
nlohmann::ordered_json to_json(const CaseResult& result);
// The same as one line without its end; bytes that are not UTF-8 are replaced.
std::string to_line(const CaseResult& result);

// Throws UsageError naming the field that is absent or of the wrong type. Unknown members are left alone.
CaseResult result_from_json(const nlohmann::json& line);
// Throws UsageError too when the text is not JSON.
CaseResult result_from_line(std::string_view line);

}  // namespace regather
