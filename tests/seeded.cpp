// ATen seeds its default generator anew in every process: without this, each run of a test would draw other numbers.
#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace {

constexpr uint64_t kSeed = 7;

struct Seeding : testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& /*test*/) override { at::manual_seed(kSeed); }
};

const bool kListens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new Seeding);  // which owns it
  return true;
}();

}  // namespace
