// Errors of collectives.
#pragma once

#include "base/error.h"

namespace regather::comm {

// The ranks called different collectives at the same sequence number; the text names rank, name, shape of each.
struct MismatchError : Error {
  explicit MismatchError(const std::string& text) : Error("comm", text) {}
};
// A rank did not arrive within the deadline; the text names the collective, who arrived and who did not.
struct DeadlineError : Error {
  DeadlineError(const std::string& text, int rank) : Error("comm", text), absent(rank) {}
  int absent;  // the first rank that did not arrive
};
// Another rank threw or left; the text names it.
struct PeerError : Error {
  explicit PeerError(const std::string& text) : Error("comm", text) {}
};

}  // namespace regather::comm
