#include "reports/html/html.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "matrix/judge/compare.h"
#include "some_report.h"

namespace regather::reports {
namespace {

using Json = nlohmann::json;

std::string between(const std::string& text, const std::string& open, const std::string& close) {
  const size_t from = text.find(open);
  EXPECT_NE(from, std::string::npos) << open;
  const size_t begin = from + open.size();
  return text.substr(begin, text.find(close, begin) - begin);
}

Json data_of(const std::string& page) {
  return Json::parse(between(page, "<script type=\"application/json\" id=\"data\">", "</script>"));
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Html, ReachesForNothingOutside) {
  const std::string page = html(mixed_report());
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const char* outside : {"src=", "@import", "url(", "<link", "<iframe", "<object", "fetch(", "XMLHttpRequest",
                              "innerHTML", "eval(", "unsafe-inline"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(count(page, "<script"), 2U) << "the data and the script";
  EXPECT_EQ(count(page, "<style"), 1U);
}

TEST(Html, HoldsEveryCaseAndItsIssues) {
  const Json data = data_of(html(mixed_report()));
  EXPECT_EQ(data["cases"].size(), 16U);
  EXPECT_EQ(data["cases"][0][0], "ddp/sft/fix=none");
  EXPECT_EQ(data["issues"][0][0], "liger#1");
  EXPECT_TRUE(data["compare"].is_null());
  const Json& crash = data["cases"][3];
  EXPECT_NE(data["strings"][crash[13].get<int>()].get<std::string>().find("SIGSEGV"), std::string::npos);
}

TEST(Html, ComparesWithAnEarlierDocument) {
  const std::string now = read_file(kMixed, 1 << 20);
  std::string before = now;
  before.replace(before.find("\"2.11.0\""), 8, "\"2.10.0\"");
  const matrix::Comparison comparison =
      matrix::compare(matrix::parse_document("a", before), matrix::parse_document("b", now));
  const Json data = data_of(html(mixed_report(), Before{"old <results>.json", comparison}));
  EXPECT_EQ(data["compare"]["before"], "old <results>.json");
  EXPECT_EQ(data["compare"]["environment"], (Json{{"torch", "2.10.0", "2.11.0"}}));
  EXPECT_EQ(data["compare"]["counts"]["unchanged"], comparison.counts.at(matrix::Verdict::unchanged));
}

// Markup in every text that a document can hold: none of it stands in the page as markup.
TEST(Html, AHostileDocumentStaysText) {
  const std::string evil = "</script><script>document.title='x'</script><!--<img src=x onerror=alert(1)>&amp;\"'";
  Json document = Json::parse(read_file(kMixed, 1 << 20));
  document["plan"]["definition"] = evil;
  for (auto& [key, value] : document["environment"].items()) value = evil;
  document["environment"][evil] = evil;
  document["environment"]["packages"] = {{evil, evil}};
  for (Json& c : document["cases"]) {
    c["reason"] = c["device"] = c["stack"] = evil;
    if (!c["signature"].is_null()) {
      for (const char* member : {"text", "type", "upstream"}) c["signature"][member] = evil;
      c["signature"]["where"] = {{"module", evil}, {"parameter", evil}, {"collective", evil}};
    }
    if (!c["gradients"].is_null()) c["gradients"]["worst"] = evil;
    if (c.contains("death")) c["death"] = {{evil, evil}};
  }
  const std::string page = html(report_of(document.dump()));
  EXPECT_EQ(count(page, "<script"), 2U);
  EXPECT_EQ(count(page, "</script"), 2U);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  const Json data = data_of(page);
  EXPECT_NE(std::ranges::find(data["strings"], Json(evil)), data["strings"].end()) << "and nothing is lost";
}

}  // namespace
}  // namespace regather::reports
