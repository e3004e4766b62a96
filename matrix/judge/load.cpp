#include "matrix/judge/load.h"

#include <fmt/ranges.h>

#include "base/embedded.h"
#include "base/error.h"
#include "base/file.h"
#include "matrix/plan/definition.h"
#include "matrix/plan/plan.h"
#include "matrix/results/verdict.h"

namespace regather {
const std::vector<EmbeddedFile>& embedded_expectations();
}

namespace regather::matrix {
namespace {

constexpr size_t kLargestExpectations = 1 << 20;
constexpr size_t kLargestDocument = size_t{512} << 20;

Expectations parse(const std::string& name_or_path) {
  for (const EmbeddedFile& file : embedded_expectations()) {
    if (file.name == name_or_path) {
      return parse_expectations(fmt::format("matrix/expectations/{}.json", file.name), file.text);
    }
  }
  if (name_or_path.find_first_of("/.") == std::string::npos) {
    throw UsageError(fmt::format("'{}' names no expectations: expected one of {}, or the path of a JSON file",
                                 name_or_path, fmt::join(known_expectations(), ", ")));
  }
  return parse_expectations(name_or_path, read_file(name_or_path, kLargestExpectations));
}

}  // namespace

Expectations load_expectations(const std::string& name_or_path) {
  Expectations expectations = parse(name_or_path);
  find_cases_to_cover(expectations);
  return expectations;
}

void find_cases_to_cover(Expectations& expectations) {
  if (!expectations.complete) return;
  try {
    for (const Case& c : expand(load_definition(expectations.definition))) {
      if (!fully_fixed(c)) expectations.to_cover.insert(id(c));
    }
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("expectations '{}', 'definition': {}", expectations.file, e.what()));
  }
}

std::vector<std::string> known_expectations() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_expectations()) names.emplace_back(file.name);
  return names;
}

PastDocument load_document(const std::string& path, bool with_lines) {
  return parse_document(path, read_file(path, kLargestDocument), with_lines);
}

}  // namespace regather::matrix
