// Golden files: what a writer wrote when its output was last approved. With REGATHER_APPROVE set they are rewritten.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace regather {

// `path` is relative to tests/.
inline void expect_golden(const std::string& path, const std::string& got) {
  const std::string file = std::string(REGATHER_SOURCE_DIR) + "/tests/" + path;
  if (std::getenv("REGATHER_APPROVE") != nullptr) {
    std::ofstream(file) << got;
    return;
  }
  std::ostringstream want;
  want << std::ifstream(file).rdbuf();
  EXPECT_EQ(got, want.str()) << "differs from tests/" << path << "; REGATHER_APPROVE=1 rewrites it";
}

}  // namespace regather
