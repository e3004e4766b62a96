#include "matrix/plan/definition.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace regather::matrix {
namespace {

std::string error_of(const std::string& json) {
  try {
    parse_definition("mine", json);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Definition, ReadsSetsInAxisOrderWithTheirFixes) {
  const Definition d = parse_definition("mine", R"({"schema":1,"about":"two sets","fixes":["off"],
      "sets":[{"world":["4"],"backend":["zero3","ddp"]},{"loss":["kto"],"fixes":["on","each"]}]})");
  ASSERT_EQ(d.sets.size(), 2U);
  EXPECT_EQ(d.about, "two sets");
  EXPECT_EQ(d.sets[0].axes[0].first, "backend");
  EXPECT_EQ(d.sets[0].axes[0].second, (std::vector<std::string>{"zero3", "ddp"}));
  EXPECT_EQ(d.sets[0].axes[1].first, "world");
  EXPECT_EQ(d.sets[0].fixes, (std::vector{FixMode::off}));
  EXPECT_EQ(d.sets[1].fixes, (std::vector{FixMode::on, FixMode::each}));
}

TEST(Definition, ASetMayListFixesAsAnIdDoes) {
  const Definition d = parse_definition("mine", R"({"schema":1,"sets":[{"fix":["redirect+gather","none"]}]})");
  EXPECT_EQ(d.sets[0].fix, (std::vector<Fixes>{{"gather", "redirect"}, {}}));
  EXPECT_NE(error_of(R"({"schema":1,"sets":[{"fix":["glue"]}]})").find("'glue' is not a fix"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1,"sets":[{"fix":[]}]})").find("'fix': expected a list"), std::string::npos);
}

TEST(Definition, NamesWhatIsWrong) {
  EXPECT_NE(error_of("{").find("definition 'mine': not JSON"), std::string::npos);
  EXPECT_NE(error_of("[]").find("expected an object"), std::string::npos);
  EXPECT_NE(error_of("{}").find("'schema': expected 1"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1})").find("'sets': expected a list"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1,"sets":[{}]})").find("'fixes' is absent"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1,"set":[]})").find("'set' is not a member"), std::string::npos);
  const auto with_set = [](const std::string& set) {
    return error_of(R"({"schema":1,"fixes":["off"],"sets":[)" + set + "]}");
  };
  EXPECT_EQ(with_set("{}"), "no error");
  EXPECT_NE(with_set(R"({"wheel":["4"]})").find("'wheel' is not an axis"), std::string::npos);
  EXPECT_NE(with_set(R"({"world":["3"]})").find("'3' is not a value of world"), std::string::npos);
  EXPECT_NE(with_set(R"({"world":[2]})").find("'world': expected strings"), std::string::npos);
  EXPECT_NE(with_set(R"({"world":[]})").find("'world': expected a list"), std::string::npos);
  EXPECT_NE(with_set(R"({"world":["2","2"]})").find("'2' stands twice"), std::string::npos);
  EXPECT_NE(with_set(R"({"fixes":["all"]})").find("expected off, on or each"), std::string::npos);
  EXPECT_NE(with_set("3").find("expected objects"), std::string::npos);
}

TEST(Definition, TheKnownOnesLoadAndSayWhatTheyAre) {
  std::vector<std::string> names;
  for (const auto& [name, about] : known_definitions()) {
    names.push_back(name);
    EXPECT_FALSE(about.empty()) << name;
    EXPECT_FALSE(load_definition(name).sets.empty()) << name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"card", "configs", "each", "fidelity", "smoke", "speed", "tables"}));
}

TEST(Definition, ModesOfFixes) {
  EXPECT_EQ(parse_fix_modes("each,off"), (std::vector{FixMode::each, FixMode::off}));
  EXPECT_EQ(parse_fix_modes("on,on"), (std::vector{FixMode::on}));
  EXPECT_THROW(parse_fix_modes(""), UsageError);
  EXPECT_THROW(parse_fix_modes("on,"), UsageError);
}

}  // namespace
}  // namespace regather::matrix
