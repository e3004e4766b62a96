// What the real packages print where this runtime says the same thing in other words.
#pragma once

#include <string>

#include "case/result.h"

namespace regather::train {

// The first line of upstream's text for an error with this signature, "" where it is ours too (libtorch's, or a check
// that both have) or where no release has been seen to fail so.
std::string upstream_text(const Case& c, const Signature& signature);

}  // namespace regather::train
