#include "matrix/judge/past_document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "matrix/results/document.h"
#include "some_cases.h"
#include "tests/matrix/some_results.h"

namespace regather::matrix {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_document("old.json", text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

std::string with_cases(const std::string& cases) {
  return R"({"schema":1,"plan":{"definition":"card","cases":2},"cases":[)" + cases + "]}";
}

TEST(PastDocument, ReadsWhatARunWrites) {
  Document written{.definition = "card", .hash = "00", .shard = {}, .cases = {}, .absent = 3, .seconds = 1};
  for (const CaseResult& r : some_results()) written.cases.push_back({r, to_line(r), {r.outcome}});
  written.cases[1].attempts = {Outcome::crash, Outcome::pass};
  written.cases[1].verdict = Verdict::flaky;
  const std::string text = print_document(written, {{"regather", "0.1.0"}});
  const PastDocument read = parse_document("old.json", text);
  EXPECT_EQ(read.definition, "card");
  EXPECT_EQ(read.asked, written.cases.size());
  ASSERT_EQ(read.cases.size(), written.cases.size());
  for (size_t i = 0; i < read.cases.size(); ++i) {
    EXPECT_EQ(id(read.cases[i].result.which), id(written.cases[i].result.which));
    EXPECT_EQ(read.cases[i].result.outcome, written.cases[i].result.outcome);
    EXPECT_EQ(read.cases[i].result.signature, written.cases[i].result.signature);
  }
  EXPECT_EQ(read.cases[1].attempts, written.cases[1].attempts);
  EXPECT_EQ(read.cases[1].verdict, Verdict::flaky);
  EXPECT_EQ(read.cases[0].verdict, std::nullopt);

  // However it is laid out.
  const PastDocument again = parse_document("old.json", nlohmann::ordered_json::parse(text).dump(4));
  EXPECT_EQ(again.cases.size(), read.cases.size());
}

TEST(PastDocument, VerdictsStandInLinesAndTotals) {
  Document written{.definition = "card", .hash = "00", .shard = {}, .cases = {}, .absent = 3, .seconds = 1};
  for (const CaseResult& r : some_results()) written.cases.push_back({r, to_line(r), {}, Verdict::xfail});
  written.cases[0].verdict = Verdict::absent;
  const auto json = nlohmann::json::parse(print_document(written, nlohmann::ordered_json::object()));
  EXPECT_EQ(json["totals"]["verdict"], nlohmann::json({{"xfail", 6}, {"absent", 4}}));
  EXPECT_EQ(json["cases"][1]["verdict"], "xfail");
}

TEST(PastDocument, ReadsWhatAMergeNeeds) {
  Document written{.definition = "card", .hash = "0a", .shard = "2/3", .selected = 20, .cases = {}, .seconds = 1.5};
  for (const CaseResult& r : some_results()) {
    written.cases.push_back({r, to_line(r), {Outcome::error, r.outcome}, Verdict::xfail});
  }
  const std::string text = print_document(written, {{"torch", "2.11.0"}, {"commit", nullptr}});
  const PastDocument read = parse_document("old.json", text, /*with_lines=*/true);
  EXPECT_EQ(read.hash, "0a");
  EXPECT_EQ(read.shard, (Shard{2, 3}));
  EXPECT_EQ(read.selected, 20U);
  EXPECT_EQ(read.seconds, 1.5);
  EXPECT_EQ(read.environment.dump(), R"({"torch":"2.11.0","commit":null})") << "in its order";
  for (size_t i = 0; i < read.cases.size(); ++i) EXPECT_EQ(read.cases[i].line, written.cases[i].line);
  EXPECT_EQ(parse_document("old.json", text).cases[0].line, "") << "kept where it is asked for";

  std::string members;
  for (int i = 0; i < 2000; ++i) members += ",\"m" + std::to_string(i) + "\":0";
  const std::string line = to_line(some_results()[0]);
  const std::string many = with_cases(line.substr(0, line.size() - 1) + members + "}");
  EXPECT_EQ(error_of(many), "no error");
  EXPECT_THROW(parse_document("old.json", many, /*with_lines=*/true), UsageError) << "their order is not kept";
}

TEST(PastDocument, SaysWhatIsWrongAndWhere) {
  const std::string line = to_line(ran("ddp/sft/fix=none", Outcome::pass));
  const auto changed = [&](const char* key, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(line);
    json[key] = value;
    return with_cases(json.dump());
  };
  EXPECT_EQ(error_of(with_cases(line)), "no error");
  EXPECT_NE(error_of("").find("document 'old.json': line 1: not JSON"), std::string::npos);
  EXPECT_EQ(error_of("{}"), "document 'old.json': 'schema' is absent");
  EXPECT_NE(error_of(R"({"schema":2})").find("reads schema 1"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1})").find("'cases' is absent"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1,"cases":[]})").find("'plan' is absent"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1,"cases":[],"plan":3})").find("'plan': expected an object"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1,"cases":[],"plan":{"definition":3,"cases":1}})").find("'plan.definition'"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1,"cases":[],"plan":{"definition":"x","cases":-1}})").find("'plan.cases'"),
            std::string::npos);
  const auto of_plan = [&](const std::string& members) {
    return error_of(R"({"schema":1,"cases":[],"plan":{"definition":"x","cases":1,)" + members + "}}");
  };
  EXPECT_NE(of_plan(R"("shard":"3/2","selected":1)").find("1 <= K <= N"), std::string::npos);
  EXPECT_NE(of_plan(R"("shard":3,"selected":1)").find("'plan.shard'"), std::string::npos);
  EXPECT_NE(of_plan(R"("shard":"1/2")").find("'plan.selected' is absent"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":1,"cases":[],"environment":3,"plan":{"definition":"x","cases":1}})")
                .find("'environment': expected an object"),
            std::string::npos);
  EXPECT_EQ(error_of(with_cases("\n{}")), "document 'old.json', line 2: result line: 'schema' is absent");
  EXPECT_EQ(error_of(with_cases(line + ",\n" + line)), "document 'old.json', line 2: 'ddp/sft/fix=none' stands twice");
  EXPECT_NE(error_of(changed("outcome", "passed")).find("'passed' is not an outcome"), std::string::npos);
  EXPECT_NE(error_of(changed("attempts", "pass")).find("'attempts'"), std::string::npos);
  EXPECT_NE(error_of(changed("attempts", {1})).find("'attempts'"), std::string::npos);
  EXPECT_NE(error_of(changed("attempts", {"passed"})).find("'passed' is not an outcome"), std::string::npos);
  EXPECT_NE(error_of(changed("verdict", "fine")).find("'fine' is not a verdict"), std::string::npos);
  EXPECT_NE(error_of(changed("verdict", 1)).find("'verdict'"), std::string::npos);
  EXPECT_EQ(error_of(changed("of a later version", 1)), "no error");
}

}  // namespace
}  // namespace regather::matrix
