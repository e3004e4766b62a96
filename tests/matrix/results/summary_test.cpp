#include "matrix/results/summary.h"

#include <gtest/gtest.h>

#include "matrix/results/verdict.h"
#include "tests/golden.h"
#include "tests/matrix/some_results.h"

namespace regather::matrix {
namespace {

std::vector<RedCase> red_cases() {
  std::vector<RedCase> list;
  for (const CaseResult& r : some_results()) {
    if (red(r)) list.push_back({r, list.empty() ? "" : "mine.json:3 (entry 1, 'world=2') expects pass"});
  }
  return list;
}

TEST(Summary, IsAsTheGoldenFileSays) {
  expect_golden("matrix/golden/summary.txt", print_red(red_cases(), " --seed 3", false) + print_table(some_results()));
}

TEST(Summary, ColoursOnlyWhenAsked) {
  EXPECT_NE(print_red(red_cases(), "", true).find('\033'), std::string::npos);
  EXPECT_EQ(print_red(red_cases(), "", false).find('\033'), std::string::npos);
}

TEST(Summary, ALongTextIsCut) {
  CaseResult r = some_results()[2];
  r.signature->text = std::string(10000, 'x');
  EXPECT_LT(print_signature(r).size(), 500U);
}

}  // namespace
}  // namespace regather::matrix
