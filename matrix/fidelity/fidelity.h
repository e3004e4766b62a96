// `regather fidelity`: one plan on the runtime and on real packages, and where they disagree.
#pragma once

#include <string>

#include "matrix/run.h"

namespace regather::matrix {

struct FidelityOptions {
  RunOptions run;         // the plan and the Python stack; with `recorded` only the folder and the jobs are read
  bool recorded = false;  // against the recordings that come with regather, without Python
  std::string record;     // write what the real packages did to this file
  std::string set;        // the recording's name
  bool json = false;
};

// Red where a cell disagrees without an exception, or an exception has nothing to except. Throws UsageError and Error.
Exit fidelity(const FidelityOptions& options);

}  // namespace regather::matrix
