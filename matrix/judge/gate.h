// Which verdicts are red: the user's choice.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "matrix/results/verdict.h"

namespace regather::matrix {

using Gate = std::set<Verdict>;

// "regression,absent"; throws UsageError naming the kinds that there are.
Gate parse_gate(std::string_view text);
std::string print_gate(const Gate& gate);

}  // namespace regather::matrix
