// Where an expectation holds: versions, ranks, device and stack.
#pragma once

#include <compare>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "case/case.h"

namespace regather::matrix {

// What a run is made with.
struct Setting {
  std::map<std::string, std::string> versions;  // of regather, torch and, on a Python stack, every package
  std::string device = "cpu";
  std::string stack = "reference";
};
// Out of the environment that a document holds.
Setting setting_of(const nlohmann::ordered_json& environment, const std::string& device, const std::string& stack);

// ">=2.11,<2.12", "==0.19.2": all of them hold. Only the numbers of a version count: 2.12.0.dev1+cpu is 2.12.0, and
// equals 2.12.
class VersionRange {
 public:
  explicit VersionRange(std::string_view text);  // throws UsageError
  // Throws UsageError when `version` does not begin with a number.
  bool holds(std::string_view version) const;

 private:
  struct Bound {
    std::string relation;
    std::vector<int> version;
  };
  std::vector<Bound> bounds_;
};

// What is empty holds anywhere.
struct Conditions {
  std::vector<std::pair<std::string, VersionRange>> versions;  // of a package that must be there
  std::vector<int> world;
  std::vector<std::string> device;
  std::vector<std::string> stack;  // reference, python (any environment), python:/folder

  // Versions, device and stack, which a run has once.
  bool hold(const Setting& setting) const;
  // The ranks, of which each case has its own.
  bool hold(const Case& c) const;
};

// {"versions":{NAME:RANGE}, "world":[2,4], "device":["cpu"], "stack":["reference"]}; throws UsageError.
Conditions parse_conditions(const nlohmann::json& json);

}  // namespace regather::matrix
