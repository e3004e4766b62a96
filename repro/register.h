// The register that comes with regather: repro/register/*.json, one file an issue.
#pragma once

#include <string_view>
#include <vector>

#include "repro/entry.h"

namespace regather::repro {

// By id. Throws UsageError where two entries answer to one name.
const std::vector<Entry>& known_entries();

// By id, alias or number's address, whatever their case; throws UsageError naming close ones.
const Entry& find_entry(std::string_view id);

}  // namespace regather::repro
