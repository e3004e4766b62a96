#include <gtest/gtest.h>

#include "base/error.h"
#include "repro/check/tree.h"

namespace regather::check {
namespace {

Json yaml(const std::string& text) { return parse_yaml("a.yaml", text).root; }

std::string refused(const std::string& text) {
  try {
    yaml(text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return {};
}

TEST(Yaml, ReadsScalarsAsPyYamlDoes) {
  const Json json = yaml("a: no\nb: 'no'\nc: 1e-5\nd: 1.0e-5\ne: ~\nf: 1_000\ng: On\nh: 0x10\ni: .5\nj: !!str 1\nk:\n");
  EXPECT_EQ(json, Json::parse(R"({"a":false,"b":"no","c":"1e-5","d":1e-5,"e":null,"f":1000,"g":true,"h":"0x10","i":0.5,
                                  "j":"1","k":null})"));
}

TEST(Yaml, AliasesAreCopiesAndMergeKeysGiveWay) {
  EXPECT_EQ(yaml("a: &x {p: 1, q: 2}\nb: *x\n")["b"], Json::parse(R"({"p":1,"q":2})"));
  EXPECT_EQ(yaml("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n")["b"], Json::parse(R"({"p":1,"q":3})"));
  EXPECT_EQ(yaml("a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc:\n  <<: [*x, *y]\n")["c"], Json::parse(R"({"p":1,"q":2})"));
}

TEST(Yaml, SaysWhichKeysStandTwice) {
  EXPECT_EQ(parse_yaml("a", "a: 1\nb: {c: 1, c: 2}\na: 3\n").repeated, (std::vector<std::string>{"b.c", "a"}));
  EXPECT_EQ(yaml("a: 1\na: 3\n")["a"], 3) << "the last counts, as in Python";
  EXPECT_EQ(parse_json("a", R"({"a":1,"b":{"c":1,"c":2}})").repeated, std::vector<std::string>{"b.c"});
}

TEST(Yaml, RefusesWhatASafeLoaderRefuses) {
  EXPECT_NE(refused("a: !!python/object:os.system {}\nb: !!python/name:os.x 1\n"), "");
  EXPECT_NE(refused("a: 1\n---\nb: 2\n").find("more than one"), std::string::npos);
  EXPECT_NE(refused("a: &x [*x]\n"), "");
  EXPECT_NE(refused("a: b: c\n").find("line 1"), std::string::npos);
  EXPECT_NE(refused("[a, b]: 1\n").find("as a key"), std::string::npos);
}

TEST(Json, IsRefusedWithItsPlace) {
  EXPECT_THROW(parse_json("a", R"({"a":1,})"), UsageError);
  EXPECT_THROW(parse_json("a", R"({"a":1)"), UsageError);
  EXPECT_THROW(parse_json("a", R"({"a":NaN})"), UsageError);
}

}  // namespace
}  // namespace regather::check
