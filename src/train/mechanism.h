// From what was observed to the mechanism of a failure. Evidence only: what the runtime saw, never which case it is.
#pragma once

#include <string>
#include <vector>

#include "case/result.h"
#include "shard/backend.h"

namespace regather::train {

struct Evidence {
  std::vector<shard::Observation> observations;  // of the backend, up to the failure
  bool checkpoint_without_graph = false;         // a reentrant checkpoint's input did not require grad
  bool missing_gradients = false;
  bool gradient_twice = false;  // a parameter's hook fired more than once in a backward
};

// The mechanism id of a departure, "" when the evidence establishes none.
std::string mechanism_of(const Departure& departure, const Evidence& evidence);

// The exception in flight as type and text: libtorch's texts without backtrace, addresses and pointers removed.
struct ErrorText {
  std::string type;
  std::string text;
};
ErrorText describe(const std::exception& error);

}  // namespace regather::train
