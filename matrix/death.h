// The result of a case that killed or hung its worker, out of what the worker left behind.
#pragma once

#include <string>

#include "base/blackbox.h"
#include "case/result.h"

namespace regather::matrix {

struct Death {
  Outcome outcome = Outcome::crash;  // or hang
  std::string type;                  // "signal 11 (SIGSEGV)", "exit 3", "timeout", "reply"
  std::string text;                  // what is known besides, may be empty
  std::string error_tail;            // the end of the worker's standard error
};

// Outcome and signature: step, phase and rank from the black box; the rank is the one that the worker's standard error
// names ("on rank 1"), else the one that entered the fewest collectives: the others wait for it.
CaseResult describe_death(const Case& c, const Death& death, const BlackBox& box);

// Whether the worker died before it began any case.
bool before_first_case(const BlackBox& box);

}  // namespace regather::matrix
