// Expectations and earlier documents from where they are kept.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "matrix/judge/expectation.h"
#include "matrix/judge/past_document.h"

namespace regather::matrix {

// The name of expectations that come with regather, or the path of a file; with `to_cover` filled. Throws UsageError.
Expectations load_expectations(const std::string& name_or_path);

// Fills `to_cover` out of the definition that they name. Throws UsageError when there is none.
void find_cases_to_cover(Expectations& expectations);

// Names of those that come with regather.
std::vector<std::string> known_expectations();

// A results.json; throws UsageError.
PastDocument load_document(const std::string& path, bool with_lines = false);

}  // namespace regather::matrix
