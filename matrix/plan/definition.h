// What to run, as data: sets of axis values whose product is the cases, and the fixes to run them with.
//
//   {"schema":1, "about":TEXT, "fixes":["off","on","each"],
//    "sets":[{AXIS:[VALUE...]..., "fixes":[...], "fix":["gather+redirect",...]}...]}
//
// An axis that a set leaves out stands at its default; combinations that mean nothing are left out of the product.
// A set's own "fixes" stand before the definition's; "fix" lists fixes as an id does, instead of "fixes".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "case/case.h"

namespace regather::matrix {

// off: none. on: the recommended set. each: for every fix of the recommended set, that set without it.
enum class FixMode { off, on, each };

// "off,on,each" in any order; throws UsageError.
std::vector<FixMode> parse_fix_modes(std::string_view text);

struct CaseSet {
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;  // in axis order, values as given
  std::vector<FixMode> fixes;
  std::vector<Fixes> fix;  // exactly these, when there are any
};

struct Definition {
  std::string name;
  std::string about;
  std::vector<CaseSet> sets;
};

// Throws UsageError naming the member at fault.
Definition parse_definition(const std::string& name, std::string_view json);

// The name of a definition that comes with regather, or the path of a file.
Definition load_definition(const std::string& name_or_path);

// Name and first words of those that come with regather.
std::vector<std::pair<std::string, std::string>> known_definitions();

}  // namespace regather::matrix
