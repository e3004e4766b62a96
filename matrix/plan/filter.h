// The filter language over cases: `backend=zero3 & loss in (dpo,kto) & !fix=none`.
//
//   any  = all { '|' all }          all  = not { '&' not }          not = '!' not | '(' any ')' | test
//   test = axis '=' value | axis '!=' value | axis 'in' '(' value { ',' value } ')' | 'fix' 'has' NAME
//
// `fix=a+b` compares the whole set, as in an id; `fix has a` asks for one fix whatever the others.
#pragma once

#include <functional>
#include <string_view>

#include "case/case.h"

namespace regather::matrix {

using Filter = std::function<bool(const Case&)>;

// Throws UsageError that names the position, what stands there and what was expected.
Filter parse_filter(std::string_view text);

}  // namespace regather::matrix
