// `regather bench matrix`: how fast the card runs, what a case costs beside its bare work, and how cost grows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "matrix/run.h"

namespace regather::matrix {

// What is asked of the card on two cores, and of the cases.
struct SpeedBudget {
  double card_seconds = 10;
  double runs_per_second = 60;
  double memory_gib = 2;
  double factor = 3;     // CPU time of a case over that of its ranks' bare work
  double growth = 1.25;  // cost a unit at the most cases or ranks over that at the fewest: no worse than linear
};

// Read off the benchmark program's JSON (Google Benchmark's).
struct BackendSpeed {
  std::string backend;
  double cases_per_second = 0;  // in one worker
  double cpu_ms = 0;            // of a case, all ranks
  double bare_ms = 0;           // of the same steps unsharded, times ranks
  double factor = 0;            // cpu_ms / bare_ms
};
struct Fit {
  std::string name;        // "cases", "ranks/zero3"
  double unit_ms = 0;      // CPU time as a multiple of the number, by least squares
  double rms_percent = 0;  // how far that is off, beside the mean
  double growth = 0;       // CPU time a unit at the largest number over that at the smallest
};
struct Stage {
  std::string name;
  double ms = 0;  // of wall time
};
struct CaseSpeed {
  std::vector<BackendSpeed> backends;
  std::vector<Fit> fits;
  std::vector<Stage> stages;
};

// Throws Error("bench") naming what is missing or which benchmark failed.
CaseSpeed read_case_speed(std::string_view json);

struct CardSpeed {
  size_t cases = 0;
  double seconds = 0;
  double memory_gib = 0;  // at most: the largest worker's peak times their number, and this process's
  double runs_per_second() const { return static_cast<double>(cases) / seconds; }
};

// What is over budget, a line each; empty when nothing is.
std::vector<std::string> over_budget(const CardSpeed& card, const CaseSpeed& cases, const SpeedBudget& budget);

struct MatrixSpeedOptions {
  RunOptions run;  // of the card
  bool json = false;
};

// Runs the card, then `regather-bench` beside this program; prints both. Red when something is over budget, or when a
// case of the card is red.
Exit measure_matrix(const MatrixSpeedOptions& options);

}  // namespace regather::matrix
