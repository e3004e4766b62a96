#include "case/mechanism.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace regather {
namespace {

TEST(Mechanism, AreSortedAndLookedUp) {
  EXPECT_TRUE(std::ranges::is_sorted(known_mechanisms(), {}, &MechanismInfo::name));
  for (const MechanismInfo& m : known_mechanisms()) {
    EXPECT_EQ(&find_mechanism(m.name), &m);
    EXPECT_GT(m.about.size(), 20U) << m.name;
    EXPECT_FALSE(m.about.ends_with('.')) << m.name;
  }
  try {
    find_mechanism("magic");
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_TRUE(
        std::string(e.what()).starts_with("'magic' is not a mechanism: expected one of accumulation_overwritten"));
  }
}

// Whatever a worker can write as a mechanism is known.
TEST(Mechanism, TheRuntimesAndThePythonStacksAreKnown) {
  std::set<std::string> found;
  const std::string source = read_file(REGATHER_SOURCE_DIR "/src/train/mechanism.cpp", 1 << 20);
  const std::regex returned("return (?:saw\\(\"\\w+\"\\) \\? )?\"(\\w+)\"(?: : \"(\\w+)\")?");
  for (auto at = std::sregex_iterator(source.begin(), source.end(), returned); at != std::sregex_iterator(); ++at) {
    for (size_t group = 1; group < at->size(); ++group) {
      if ((*at)[group].matched) found.insert((*at)[group]);
    }
  }
  EXPECT_GE(found.size(), 12U);
  const auto rules =
      nlohmann::json::parse(read_file(REGATHER_SOURCE_DIR "/matrix/peers/regather_peers/mechanisms.json", 1 << 20));
  for (const auto& rule : rules.at("rules")) found.insert(rule.at("mechanism").get<std::string>());
  for (const std::string& name : found) EXPECT_NO_THROW(find_mechanism(name)) << name;
}

}  // namespace
}  // namespace regather
