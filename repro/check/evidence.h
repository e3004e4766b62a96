// What was measured, cell by cell, and what of it may stand for a cell that was not.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "case/case.h"
#include "case/result.h"

namespace regather::check {

struct Cell {
  Case which;
  Outcome outcome = Outcome::notrun;
  std::string mechanism;
  std::string phase;
  std::string type;
  std::string text;  // its first line
  double relative_l2 = 0;
  double tolerance = 0;
  int missing = 0;
};

// One run of many cells with the same packages: a recording, or a results.json.
struct Measured {
  std::string name;                             // "recording 'supported'", the file's name
  std::map<std::string, std::string> packages;  // versions; empty where the document does not say
  std::map<std::string, Cell> cells;            // by id
};

// The package whose release decides what a backend does: deepspeed or torch.
const char* deciding_package(Backend backend);

// The recordings that come with regather, the oldest packages first.
std::vector<Measured> measured_by_recordings();
// A results.json of ours; throws UsageError.
Measured measured_by_document(const std::string& path);

// An axis in which the cell that answers differs from the case that was asked for, and why that is taken to make no
// difference: in so many measured pairs that differ in this axis alone, on the same backend and with the loss inside
// the wrapper's forward or outside as here, the outcome was the same.
struct Difference {
  std::string axis;
  std::string asked;
  std::string measured;
  size_t pairs = 0;
};

struct Found {
  const Measured* in = nullptr;
  const Cell* cell = nullptr;
  std::vector<Difference> differences;  // none: the very case
};

// The case itself, or else the nearest measured one that differs only in dtype, world, accumulate, persistence or head,
// each by an axis of which pairs were measured, in any of `all`, and in none of which it changed outcome or mechanism.
// nullopt: unknown.
std::optional<Found> find_cell(const Measured& measured, const Case& c, const std::vector<Measured>& all);

}  // namespace regather::check
