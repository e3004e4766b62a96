// What real packages did, cell by cell: a file of one header line and one line a cell, made by
// `regather fidelity --stack python:ENV --record FILE` and kept in matrix/recordings.
//
//   {"recording":1, "set":NAME, "python":VERSION, "packages":{NAME:VERSION...}}
//   {"id":..., "built_in":[fixes], "outcome":..., "signature":{...}, "also":[...], "gradients":{...}, "loss":{...},
//    "runtime_relative_l2":NUMBER, "milliseconds":NUMBER}
//
// The parts of a cell are those of a line of cases.jsonl, of the gradients only what is compared; texts are cut to
// their first line. `built_in` names the fixes that this release has whatever the id says: there the runtime's case is
// the one with these fixes added.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "case/result.h"

namespace regather::matrix {

struct RecordedCell {
  CaseResult real;                   // what the real packages did
  Fixes built_in;                    // fixes of the release itself
  std::optional<double> runtime_l2;  // the runtime's gradients from the real ones, parameter by parameter, the worst
  Case runtime_case() const;         // the same case on the runtime
};

struct Recording {
  std::string set;
  std::string header;  // the header line, as JSON text
  std::vector<RecordedCell> cells;
};

// A cell out of a line of cases.jsonl that a Python stack has written.
RecordedCell cell_of(const CaseResult& result, std::string_view line);

// Throws UsageError naming the line.
Recording parse_recording(const std::string& name, std::string_view text);
std::string print_recording(const std::string& set, const nlohmann::ordered_json& environment,
                            const std::vector<RecordedCell>& cells);

// Those that come with regather.
std::vector<Recording> known_recordings();

// A text as recordings keep and compare it: the first line, at most 200 bytes, row counts of a chunk masked.
std::string first_words(std::string_view text);

}  // namespace regather::matrix
