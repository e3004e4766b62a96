#include "matrix/results/document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/golden.h"
#include "tests/matrix/some_results.h"

namespace regather::matrix {
namespace {

TEST(Document, IsAsTheGoldenFileSays) {
  Document document{
      .definition = "card", .hash = "0123456789abcdef", .shard = "1/2", .selected = 13, .cases = {}, .seconds = 1.25};
  for (const CaseResult& r : some_results()) document.cases.push_back({r, to_line(r), {r.outcome}});
  document.cases[1].attempts = {Outcome::crash, Outcome::pass};
  const std::string text = print_document(document, {{"regather", "0.1.0"}});
  expect_golden("matrix/golden/results.json", text);

  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["cases"].size(), 7U);
  EXPECT_EQ(json["totals"]["pass"], 2);
}

TEST(Document, WithoutCasesIsJsonToo) { EXPECT_TRUE(nlohmann::json::parse(print_document({}, {}))["cases"].empty()); }

}  // namespace
}  // namespace regather::matrix
