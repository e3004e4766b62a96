#include "matrix/summary.h"

#include <gtest/gtest.h>

#include "some_results.h"
#include "tests/golden.h"

namespace regather::matrix {
namespace {

TEST(Summary, IsAsTheGoldenFileSays) {
  expect_golden("matrix/golden/summary.txt",
                print_red(some_results(), " --seed 3", false) + print_table(some_results()));
}

TEST(Summary, ColoursOnlyWhenAsked) {
  EXPECT_NE(print_red(some_results(), "", true).find('\033'), std::string::npos);
  EXPECT_EQ(print_red(some_results(), "", false).find('\033'), std::string::npos);
}

TEST(Summary, ALongTextIsCut) {
  CaseResult r = some_results()[2];
  r.signature->text = std::string(10000, 'x');
  EXPECT_LT(print_signature(r).size(), 500U);
}

}  // namespace
}  // namespace regather::matrix
