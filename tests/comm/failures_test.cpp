// What the ranks see when one of them errs, and that nothing of them stays behind.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "comm/errors.h"
#include "tests/comm/ranks.h"

namespace regather::comm {
namespace {

using std::chrono::milliseconds;

size_t threads_now() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST(Failures, AMismatchNamesKindsShapesDtypesAndRanks) {
  const auto ends = run_threads({2, milliseconds(60000)}, [](World& world) {
    world.barrier();
    at::Tensor tensor = at::full({2, 3}, 1.0, at::kFloat);
    at::Tensor output = at::empty({8}, at::kBFloat16);
    if (world.rank() == 0) world.all_reduce(tensor)->wait();
    if (world.rank() == 1) world.all_gather(output, at::full({4}, 1.0, at::kBFloat16))->wait();
    return std::string();
  });
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.error_type, "regather::comm::MismatchError");
    EXPECT_EQ(end.error_text,
              "ranks called different collectives at #2: rank 0 all_reduce sum Float [2, 3]; rank 1 all_gather "
              "BFloat16 [4]");
    EXPECT_FALSE(end.peer_failed);
  }
}

TEST(Failures, OtherSizesDtypesRootsAndOperationsMismatchToo) {
  const auto text = [](const std::function<void(World&)>& function) {
    const auto ends = run_threads({2, milliseconds(60000)}, [&](World& world) {
      function(world);
      return std::string();
    });
    EXPECT_EQ(ends[0].error_type, "regather::comm::MismatchError");
    return ends[1].error_text;
  };
  EXPECT_EQ(text([](World& world) {
              at::Tensor tensor = at::full({2 + world.rank()}, 1.0, at::kFloat);
              world.all_reduce(tensor)->wait();
            }),
            "ranks called different collectives at #1: rank 0 all_reduce sum Float [2]; rank 1 all_reduce sum Float "
            "[3]");
  EXPECT_EQ(text([](World& world) {
              at::Tensor tensor = at::full({2}, 1.0, world.rank() == 0 ? at::kFloat : at::kDouble);
              world.broadcast(tensor, 0)->wait();
            }),
            "ranks called different collectives at #1: rank 0 broadcast root 0 Float [2]; rank 1 broadcast root 0 "
            "Double [2]");
  EXPECT_EQ(text([](World& world) {
              at::Tensor tensor = at::full({2}, 1.0, at::kFloat);
              world.broadcast(tensor, world.rank())->wait();
            }),
            "ranks called different collectives at #1: rank 0 broadcast root 0 Float [2]; rank 1 broadcast root 1 "
            "Float [2]");
}

TEST(Failures, AMissingRankIsAHangThatNamesIt) {
  std::atomic<int> ended{0};
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_threads({3, milliseconds(200)}, [&](World& world) {
    world.barrier();
    if (world.rank() == 1) {
      while (ended < 2) std::this_thread::sleep_for(milliseconds(1));
      return std::string("back");
    }
    at::Tensor tensor = at::full({4}, 1.0, at::kFloat);
    try {
      world.all_reduce(tensor)->wait();
    } catch (const DeadlineError&) {
      ++ended;
      throw;
    }
    return std::string();
  });
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(200));
  EXPECT_LT(took, milliseconds(5000));
  for (const int rank : {0, 2}) {
    const RankEnd& end = ends[static_cast<size_t>(rank)];
    EXPECT_EQ(end.error_type, "hang");
    EXPECT_EQ(end.error_text,
              "collective #2: rank 1 did not arrive within 200 ms: rank 0 all_reduce sum Float [4]; rank 1 absent "
              "since barrier #1; rank 2 all_reduce sum Float [4]");
  }
  EXPECT_EQ(ends[1].result, "back");
}

TEST(Failures, AThrowingRankIsTheCauseAndTheOthersFollow) {
  const size_t before = threads_now();
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_threads({4, milliseconds(60000)}, [](World& world) -> std::string {
    world.barrier();
    if (world.rank() == 2) throw std::out_of_range("shard 9 of 8");
    at::Tensor tensor = at::full({4}, 1.0, at::kFloat);
    world.all_reduce(tensor)->wait();
    return "unreachable";
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5000));
  EXPECT_EQ(ends[2].error_type, "std::out_of_range");
  EXPECT_EQ(ends[2].error_text, "shard 9 of 8");
  EXPECT_FALSE(ends[2].peer_failed);
  for (const size_t rank : {0U, 1U, 3U}) {
    EXPECT_EQ(ends[rank].error_type, "regather::comm::PeerError");
    EXPECT_TRUE(ends[rank].peer_failed);
    EXPECT_TRUE(ends[rank].error_text.starts_with(
        "rank 2 failed after barrier #1 (std::out_of_range: shard 9 of 8); collective #2: "))
        << ends[rank].error_text;
  }
  EXPECT_EQ(threads_now(), before);
}

TEST(Failures, TorchErrorsComeWithoutTheirBacktrace) {
  const auto ends = run_threads({1, milliseconds(1000)}, [](World&) -> std::string {
    at::empty({2}, at::kFloat).add(at::empty({3}, at::kFloat));
    return "unreachable";
  });
  EXPECT_EQ(ends[0].error_type, "c10::Error");
  EXPECT_EQ(ends[0].error_text,
            "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0");
}

TEST(Failures, WhatIsNoExceptionClassIsReportedToo) {
  const auto ends = run_threads({1, milliseconds(1000)}, [](World&) -> std::string { throw 5; });
  EXPECT_EQ(ends[0].error_type, "int");
}

TEST(Failures, ArgumentsWrongOnThisRankAreItsOwnError) {
  const auto ends = run_threads({2, milliseconds(60000)}, [](World& world) {
    at::Tensor output = at::empty({5}, at::kFloat);
    if (world.rank() == 0) {
      world.all_gather(output, at::full({2}, 1.0, at::kFloat));
    } else {
      world.barrier();
    }
    return std::string();
  });
  EXPECT_EQ(ends[0].error_type, "regather::Error");
  EXPECT_EQ(ends[0].error_text, "all_gather: a tensor has 5 elements of Float: expected 4 of Float");
  EXPECT_TRUE(ends[1].peer_failed);
  const auto strided = run_threads({1, milliseconds(1000)}, [](World& world) {
    at::Tensor tensor = at::full({2, 3}, 1.0, at::kFloat).t();
    world.all_reduce(tensor);
    return std::string();
  });
  EXPECT_EQ(strided[0].error_text,
            "all_reduce of a Float [3, 2] tensor that is not contiguous: call contiguous() first");
}

TEST(Failures, ThreadsAreNamedAfterTheirRank) {
  const auto names = expect_ranks(2, [](World&) {
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof name);
    return std::string(name);
  });
  EXPECT_EQ(names, (std::vector<std::string>{"rank 0", "rank 1"}));
}

}  // namespace
}  // namespace regather::comm
