#include "matrix/judge/expectation.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "some_cases.h"

namespace regather::matrix {
namespace {

std::string error_of(const std::string& text) {
  try {
    expectations("card", text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

const char* const kId = "ddp/sft/fix=none";

TEST(Expectation, IsReadWithItsPlace) {
  const Expectations all = expectations(
      "card", entry("backend=zero1", "pass"),
      entry("backend=ddp", "wrong_gradient", kUnarmed, R"(,"review_by":"2027-02-28","when":{"world":[2]})"));
  EXPECT_EQ(all.definition, "card");
  ASSERT_EQ(all.entries.size(), 2U);
  EXPECT_EQ(all.entries[1].where, "mine.json:3 (entry 2, 'backend=ddp')");
  EXPECT_EQ(all.entries[1].issues, std::vector<std::string>{"trl#7245"});
  EXPECT_EQ(all.entries[1].review_by, "2027-02-28");
  EXPECT_EQ(all.entries[1].when.world, std::vector{2});
  EXPECT_TRUE(all.entries[1].selects(parse_id(kId)));
  EXPECT_FALSE(all.entries[0].selects(parse_id(kId)));
  EXPECT_EQ(print_expected(all.entries[0]), "pass");
  EXPECT_EQ(print_expected(all.entries[1]), "wrong_gradient in gradients [reducer_unarmed]");
}

TEST(Expectation, MaySelectOneCase) {
  const Expectations all =
      expectations("card", R"({"case":"ddp/sft/world=2/fix=none","outcome":"hang",)" + kRest + "}");
  EXPECT_TRUE(all.entries[0].selects(parse_id(kId)));
  EXPECT_FALSE(all.entries[0].selects(parse_id("ddp/kto/fix=none")));
}

TEST(Expectation, EveryPartOfASignatureCounts) {
  const Expectation e =
      expectations("card", entry("backend=ddp", "error", R"({"mechanism":"mixed_dtype","phase":"forward",
      "type":"c10::Error","text":"^expected m\\d and"})"))
          .entries[0];
  const std::string text = "expected m1 and m2 to have the same dtype";
  EXPECT_TRUE(e.met_by(failed(kId, Outcome::error, "mixed_dtype", Phase::forward, text, "c10::Error")));
  EXPECT_FALSE(e.met_by(failed(kId, Outcome::invariant, "mixed_dtype", Phase::forward, text, "c10::Error")));
  EXPECT_FALSE(e.met_by(failed(kId, Outcome::error, "mixed_dtensor", Phase::forward, text, "c10::Error")));
  EXPECT_FALSE(e.met_by(failed(kId, Outcome::error, "mixed_dtype", Phase::backward, text, "c10::Error")));
  EXPECT_FALSE(e.met_by(failed(kId, Outcome::error, "mixed_dtype", Phase::forward, text, "Error")));
  EXPECT_FALSE(e.met_by(failed(kId, Outcome::error, "mixed_dtype", Phase::forward, "not " + text, "c10::Error")));
  EXPECT_FALSE(e.met_by(ran(kId, Outcome::error))) << "a failure without a signature";
  EXPECT_EQ(print_expected(e), "error in forward [mixed_dtype], type c10::Error, text /^expected m\\d and/");
}

TEST(Expectation, NoMechanismMeansThatNoneWasEstablished) {
  const Expectation e =
      expectations("card", entry("backend=ddp", "error", R"({"mechanism":null,"phase":"step"})")).entries[0];
  EXPECT_TRUE(e.met_by(failed(kId, Outcome::error, "", Phase::step)));
  EXPECT_FALSE(e.met_by(failed(kId, Outcome::error, "mixed_dtype", Phase::step)));
}

TEST(Expectation, NamesFileLineAndEntryAtFault) {
  EXPECT_TRUE(error_of("{}").starts_with("expectations 'mine.json', line 2, entry 1: ")) << error_of("{}");
  const auto wrong = [](const std::string& text, const std::string& says) {
    EXPECT_NE(error_of(text).find(says), std::string::npos) << error_of(text);
  };
  EXPECT_EQ(error_of(entry("backend=ddp", "hang")), "no error");
  wrong(entry("backend=dpd", "pass"), "position 9: 'dpd' is not a value of backend");
  wrong(entry("backend=ddp", "passes"), "'passes' is not an outcome");
  wrong(entry("backend=ddp", "unsupported"), "'outcome' is unsupported");
  wrong(entry("backend=ddp", "notrun"), "'outcome' is notrun");
  wrong(entry("backend=ddp", "error"), "'signature' is absent: outcome error needs one");
  wrong(entry("backend=ddp", "pass", kUnarmed), "a pass has none");
  wrong(entry("backend=ddp", "error", R"({"mechanism":"magic","phase":"step"})"), "'magic' is not a mechanism");
  wrong(entry("backend=ddp", "error", R"({"mechanism":null,"phase":"later"})"), "'later' is not a phase");
  wrong(entry("backend=ddp", "error", R"({"phase":"step"})"), "'signature.mechanism' is absent");
  wrong(entry("backend=ddp", "error", R"({"mechanism":null,"phase":"step","rank":0})"),
        "'signature.rank' is not a member");
  wrong(entry("backend=ddp", "error", R"({"mechanism":null,"phase":"step","text":"("})"),
        "no regular expression (RE2)");
  wrong(entry("backend=ddp", "error", R"({"mechanism":null,"phase":"step","text":")" + std::string(2000, 'x') + "\"}"),
        "at most 1000");
  wrong(entry("backend=ddp", "pass", "", R"(,"review_by":"2026-02-30")"),
        "'review_by' is \"2026-02-30\": expected a date");
  wrong(entry("backend=ddp", "pass", "", R"(,"review_by":"soon")"), "expected a date");
  wrong(entry("backend=ddp", "pass", "", R"(,"review_by":"+026-02-28")"), "expected a date");
  wrong(entry("backend=ddp", "pass", "", R"(,"when":{"moon":1})"), "'when.moon' is not a member");
  wrong(entry("backend=ddp", "pass", "", R"(,"until":"2026-01-01")"), "'until' is not a member");
  wrong("{\"outcome\":\"pass\"," + kRest + "}", "either 'select', a filter, or 'case', an id");
  wrong(R"({"select":"backend=ddp","case":"ddp/sft/fix=none","outcome":"pass",)" + kRest + "}", "either 'select'");
  wrong(R"({"case":"ddp","outcome":"pass",)" + kRest + "}", "expected backend/loss");
  wrong(R"({"select":"backend=ddp","outcome":"pass","reason":"x","since":"2026-01-01"})", "'issues' is absent");
  wrong(R"({"select":"backend=ddp","outcome":"pass","issues":"x","reason":"x","since":"2026-01-01"})",
        "'issues' is \"x\"");
  wrong(R"({"select":"backend=ddp","outcome":"pass","issues":[],"since":"2026-01-01"})", "'reason' is absent");
  wrong("3", "expected objects in the list");
}

TEST(Expectation, TheFileIsCheckedToo) {
  const auto error = [](const char* text) -> std::string {
    try {
      parse_expectations("mine.json", text);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(error("{").find("expectations 'mine.json': line 1: not JSON"), std::string::npos);
  EXPECT_NE(error("{}").find("'schema' is absent"), std::string::npos);
  EXPECT_NE(error(R"({"schema":2})").find("'schema' is 2: expected 1"), std::string::npos);
  EXPECT_NE(error(R"({"schema":1,"about":"x"})").find("'definition' is absent"), std::string::npos);
  EXPECT_NE(error(R"({"schema":1,"about":"x","definition":"card"})").find("'expectations' is absent"),
            std::string::npos);
  EXPECT_NE(
      error(R"({"schema":1,"about":"x","definition":"card","expectations":[],"x":1})").find("'x' is not a member"),
      std::string::npos);
  EXPECT_NE(error(R"({"schema":1,"about":"x","definition":"card","complete":1,"expectations":[]})")
                .find("'complete' is 1: expected true or false"),
            std::string::npos);
}

}  // namespace
}  // namespace regather::matrix
