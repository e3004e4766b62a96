// Every writer on one document, byte for byte. REGATHER_WRITE_GOLDEN=1 writes the files anew, to be read before they
// are committed.
#include <gtest/gtest.h>

#include <cstdlib>

#include "reports/ctrf.h"
#include "reports/github.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/sarif.h"
#include "some_report.h"

namespace regather::reports {
namespace {

struct Writer {
  const char* file;
  std::string (*write)(const Report&);
};

class Golden : public testing::TestWithParam<Writer> {};

TEST_P(Golden, IsAsCommitted) {
  const std::string path = std::string(REGATHER_SOURCE_DIR "/tests/reports/golden/") + GetParam().file;
  const std::string text = GetParam().write(mixed_report());
  if (std::getenv("REGATHER_WRITE_GOLDEN") != nullptr) replace_file(path, text);
  EXPECT_EQ(text, read_file(path, 1 << 20)) << "if the new text is right: REGATHER_WRITE_GOLDEN=1 and read the diff";
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
