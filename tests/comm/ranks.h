// Runs ranks as threads and expects every one of them to end well.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/launch.h"

namespace regather::comm {

inline std::vector<std::string> expect_ranks(int world, const std::function<std::string(World&)>& function) {
  std::vector<std::string> results;
  for (const RankEnd& end : run_threads({world, std::chrono::milliseconds(60000)}, function)) {
    EXPECT_EQ(end.error_type, "") << end.error_text;
    results.push_back(end.result);
  }
  return results;
}

inline void on_ranks(int world, const std::function<void(World&)>& function) {
  expect_ranks(world, [&](World& ranks) {
    function(ranks);
    return std::string();
  });
}

}  // namespace regather::comm
