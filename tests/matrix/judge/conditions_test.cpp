#include "matrix/judge/conditions.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace regather::matrix {
namespace {

bool holds(const char* range, const char* version) { return VersionRange(range).holds(version); }

Conditions parse(const char* json) { return parse_conditions(nlohmann::json::parse(json)); }

const Setting kReference{
    .versions = {{"regather", "0.1.0"}, {"torch", "2.11.0"}}, .device = "cpu", .stack = "reference"};
const Setting kPython{
    .versions = {{"torch", "2.11.0+cpu"}, {"deepspeed", "0.19.2"}}, .device = "cuda", .stack = "python:/envs/one"};

TEST(VersionRange, ComparesNumbersNotText) {
  EXPECT_TRUE(holds(">=2.9", "2.11.0"));
  EXPECT_FALSE(holds("<2.9", "2.11.0"));
  EXPECT_TRUE(holds(">=2.11,<2.12", "2.11.3"));
  EXPECT_FALSE(holds(">=2.11, <2.12", "2.12"));
  EXPECT_TRUE(holds("==2.11", "2.11.0+cpu"));
  EXPECT_FALSE(holds("> 2.11", "2.11.0"));
  EXPECT_TRUE(holds("<=2.11", "2.11"));
  EXPECT_TRUE(holds("==2.12", "2.12.0.dev20260101"));
}

TEST(VersionRange, RefusesWhatIsNone) {
  for (const char* wrong : {"", "2.11", ">=", ">=x", "~=2.11", ">=2.11,", "=2.11", "!=2.11"}) {
    EXPECT_THROW(VersionRange{wrong}, UsageError) << wrong;
  }
  EXPECT_THROW(holds(">=1", "unknown"), UsageError);
}

TEST(Conditions, EachMayFail) {
  EXPECT_TRUE(parse("{}").hold(kReference));
  EXPECT_TRUE(parse(R"({"versions":{"torch":">=2.11"}})").hold(kReference));
  EXPECT_FALSE(parse(R"({"versions":{"torch":"<2.11"}})").hold(kReference));
  EXPECT_FALSE(parse(R"({"versions":{"deepspeed":"<0.19.3"}})").hold(kReference)) << "a package that is not there";
  EXPECT_TRUE(parse(R"({"versions":{"deepspeed":"<0.19.3"}})").hold(kPython));
  EXPECT_FALSE(parse(R"({"versions":{"deepspeed":"<0.19.3","torch":">3"}})").hold(kPython));
  EXPECT_FALSE(parse(R"({"device":["cuda"]})").hold(kReference));
  EXPECT_TRUE(parse(R"({"device":["cuda","cpu"]})").hold(kReference));
  EXPECT_TRUE(parse(R"({"stack":["python"]})").hold(kPython));
  EXPECT_TRUE(parse(R"({"stack":["python:/envs/one"]})").hold(kPython));
  EXPECT_FALSE(parse(R"({"stack":["python:/envs/two"]})").hold(kPython));
  EXPECT_FALSE(parse(R"({"stack":["reference"]})").hold(kPython));
  EXPECT_TRUE(parse(R"({"world":[4]})").hold(parse_id("ddp/sft/world=4/fix=none")));
  EXPECT_FALSE(parse(R"({"world":[4,8]})").hold(parse_id("ddp/sft/fix=none")));
}

TEST(Conditions, AreCheckedStrictly) {
  for (const char* wrong : {"[]", R"({"size":[2]})", R"({"world":2})", R"({"world":[3]})", R"({"world":["x"]})",
                            R"({"device":["tpu"]})", R"({"device":"cpu"})", R"({"stack":["ruby"]})",
                            R"({"versions":{"torch":2}})", R"({"versions":{"torch":"2.11"}})", R"({"versions":[]})"}) {
    EXPECT_THROW(parse(wrong), UsageError) << wrong;
  }
}

TEST(Setting, ComesOutOfADocumentsEnvironment) {
  const auto environment = nlohmann::ordered_json::parse(
      R"({"regather":"0.1.0","torch":null,"cores":2,"packages":{"torch":"2.10.0","trl":"1.6.0"}})");
  const Setting s = setting_of(environment, "cpu", "python:/e");
  EXPECT_EQ(s.versions,
            (std::map<std::string, std::string>{{"regather", "0.1.0"}, {"torch", "2.10.0"}, {"trl", "1.6.0"}}));
}

}  // namespace
}  // namespace regather::matrix
