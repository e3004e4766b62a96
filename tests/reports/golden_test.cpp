// Every writer on one document, byte for byte.
#include <gtest/gtest.h>

#include "reports/ctrf.h"
#include "reports/github.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/sarif.h"
#include "some_report.h"
#include "tests/golden.h"

namespace regather::reports {
namespace {

struct Writer {
  const char* file;
  std::string (*write)(const Report&);
};

class Golden : public testing::TestWithParam<Writer> {};

TEST_P(Golden, IsAsCommitted) {
  expect_golden(std::string("reports/golden/") + GetParam().file, GetParam().write(mixed_report()));
}

INSTANTIATE_TEST_SUITE_P(Writers, Golden,
                         testing::Values(Writer{"junit.xml", junit}, Writer{"ctrf.json", ctrf},
                                         Writer{"sarif.json", sarif}, Writer{"markdown.md", markdown},
                                         Writer{"summary.md", step_summary}, Writer{"annotations.txt", annotations}),
                         [](const auto& of) {
                           const std::string name = of.param.file;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace regather::reports
