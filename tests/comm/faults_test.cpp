// Counters, the black box, and each seeded fault of comm: seen to change a result, and to leave the rest alone.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "base/blackbox.h"
#include "case/fault.h"
#include "comm/observed.h"
#include "tests/comm/ranks.h"

namespace regather::comm {
namespace {

class Seeded {
 public:
  explicit Seeded(Fault fault) { seed_fault(fault); }
  ~Seeded() { seed_fault(Fault::none); }
  Seeded(const Seeded&) = delete;
  Seeded& operator=(const Seeded&) = delete;
};

// "all_reduce reduce_scatter all_gather integer" as this rank sees them: 1 + 2, 10 + 20, 2 (of rank 1), 3 when sound.
std::string seen(World& world) {
  const double mine = world.rank() + 1.0;
  at::Tensor sum = at::full({4}, mine, at::kFloat);
  at::Tensor shard = at::full({2}, -1.0, at::kFloat);
  at::Tensor all = at::full({world.size()}, -1.0, at::kFloat);
  at::Tensor count = at::full({1}, world.rank() + 1, at::kLong);
  world.all_reduce(sum)->wait();
  world.reduce_scatter(shard, at::full({2 * world.size()}, mine * 10, at::kFloat))->wait();
  world.all_gather(all, at::full({1}, mine, at::kFloat))->wait();
  world.all_reduce(count)->wait();
  return fmt::format("{:.6g} {:.6g} {:.6g} {}", sum[3].item<float>(), shard[1].item<float>(), all[1].item<float>(),
                     count.item<int64_t>());
}

std::vector<std::string> results() {
  std::vector<std::string> texts;
  for (const std::string& text : expect_ranks(2, seen)) texts.push_back(text);
  return texts;
}

TEST(Faults, NoneIsSound) { EXPECT_EQ(results(), (std::vector<std::string>{"3 30 2 3", "3 30 2 3"})); }

TEST(Faults, LateRankScaleChangesSumsOnRankOneAlone) {
  const Seeded seeded(Fault::late_rank_scale);
  EXPECT_EQ(results(), (std::vector<std::string>{"3 30 2 3", "3.00015 30.0015 2 3"}));
}

TEST(Faults, LostWaitLeavesWhatWasThere) {
  const Seeded seeded(Fault::lost_wait);
  EXPECT_EQ(results(), (std::vector<std::string>{"1 0 2 3", "2 0 2 3"}));
}

TEST(Faults, DropAllReduceLeavesEachRankItsOwn) {
  const Seeded seeded(Fault::drop_all_reduce);
  EXPECT_EQ(results(), (std::vector<std::string>{"1 30 2 3", "2 30 2 3"}));
}

TEST(Faults, LoseFourthRankLeavesItOutOfTheSums) {
  EXPECT_EQ(expect_ranks(4, seen)[0], "10 100 2 10");
  const Seeded seeded(Fault::lose_fourth_rank);
  EXPECT_EQ(results(), (std::vector<std::string>{"3 30 2 3", "3 30 2 3"}));
  for (const std::string& text : expect_ranks(4, seen)) EXPECT_EQ(text, "6 60 2 10");
}

// c10d::Reducer waits on futures alone.
std::vector<std::string> by_future() {
  return expect_ranks(2, [](World& world) {
    at::Tensor sum = at::full({4}, world.rank() + 1.0, at::kFloat);
    const auto future = world.all_reduce(sum)->getFuture();
    future->waitAndThrow();
    return fmt::format("{:.6g} {:.6g}", sum[3].item<float>(), future->value().toTensorVector()[0][0].item<float>());
  });
}

TEST(Faults, ActOnFuturesToo) {
  EXPECT_EQ(by_future(), (std::vector<std::string>{"3 3", "3 3"}));
  {
    const Seeded seeded(Fault::late_rank_scale);
    EXPECT_EQ(by_future(), (std::vector<std::string>{"3 3", "3.00015 3.00015"}));
  }
  {
    const Seeded seeded(Fault::drop_all_reduce);
    EXPECT_EQ(by_future(), (std::vector<std::string>{"1 1", "2 2"}));
  }
  const Seeded seeded(Fault::lost_wait);
  EXPECT_EQ(by_future(), (std::vector<std::string>{"3 3", "3 3"}));
}

TEST(Observed, CountsCallsAndBytesByKind) {
  on_ranks(2, [](World& world) {
    seen(world);
    world.barrier();
    world.all_gather_int(5);
    const auto& counts = world.counts();
    EXPECT_EQ(counts.at("all_reduce").calls, 2);
    EXPECT_EQ(counts.at("all_reduce").bytes, 4 * 4 + 8);
    EXPECT_EQ(counts.at("reduce_scatter").calls, 1);
    EXPECT_EQ(counts.at("reduce_scatter").bytes, 16);
    EXPECT_EQ(counts.at("all_gather").calls, 1);
    EXPECT_EQ(counts.at("all_gather").bytes, 4);
    EXPECT_EQ(counts.at("barrier").calls, 1);
    EXPECT_EQ(counts.at("check").calls, 1);
    EXPECT_EQ(counts.size(), 5U);
  });
}

TEST(Observed, TracesTheLastCollectiveOfEachRank) {
  trace_case("case");
  on_ranks(2, [](World& world) {
    world.barrier();
    at::Tensor sum = at::full({4}, 1.0, at::kFloat);
    if (world.rank() == 0) world.all_reduce(sum);
  });
  EXPECT_STREQ(blackbox().ranks[0].collective.data(), "all_reduce #2");
  EXPECT_EQ(blackbox().ranks[0].collectives, 2U);
  EXPECT_STREQ(blackbox().ranks[1].collective.data(), "barrier #1");
}

TEST(Observed, AWorldWithoutItIsRefused) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(0, 1);
  EXPECT_ANY_THROW(World(0, 1, group, std::make_shared<Observed::Counts>()));
}

}  // namespace
}  // namespace regather::comm
