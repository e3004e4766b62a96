// Gathering ahead by the recorded order changes when parameters come and go, never what is computed with them.
#include <ATen/core/grad_mode.h>

#include "autograd/boundary.h"
#include "autograd/checkpoint.h"
#include "autograd/saved_hooks.h"
#include "fixes/recompute_hold.h"
#include "shard/zero/zero3.h"
#include "tests/shard/small_model.h"

namespace regather::shard {
namespace {

BackendOptions nothing_ahead() {
  BackendOptions options;
  options.prefetch_bucket_size = 0;
  return options;
}

// Something is in flight at the end of every forward, and most parameters are gathered twice.
BackendOptions small_bucket() {
  BackendOptions options;
  options.prefetch_bucket_size = 12;
  options.max_reuse_distance = 0;
  return options;
}

std::vector<BackendOptions> all_options() {
  BackendOptions defaults;
  BackendOptions persistent;
  persistent.persistence_threshold = 5;
  BackendOptions small_and_persistent = small_bucket();
  small_and_persistent.persistence_threshold = 5;
  BackendOptions few_live = small_bucket();
  few_live.prefetch_bucket_size = 100;
  few_live.max_live_parameters = 20;
  BackendOptions huge;
  huge.persistence_threshold = INT64_MAX;
  return {defaults, persistent, small_bucket(), small_and_persistent, few_live, huge};
}

enum class Path { plain, without_norm, norm_twice, evaluation };

at::Tensor run_path(SmallModel& model, Path path, int rank) {
  at::Tensor x = (*model.first)(rank_input(rank));
  if (path != Path::without_norm) x = (*model.norm)(x);
  if (path == Path::norm_twice) x = (*model.norm)(x);
  return (*model.second)(x).square().sum();
}

// Every gradient of every step, and the parameters at the end.
std::vector<at::Tensor> train(comm::World& world, const BackendOptions& options, const std::vector<Path>& paths) {
  std::vector<at::Tensor> seen;
  SmallModel model;
  Zero3 zero(world, model, options);
  for (const Path path : paths) {
    const at::AutoGradMode mode(path != Path::evaluation);
    const at::Tensor loss = zero.forward([&] { return run_path(model, path, world.rank()); });
    seen.push_back(loss.detach());
    if (path == Path::evaluation) continue;
    zero.zero_gradients();
    zero.backward(loss);
    for (const auto& [name, gradient] : zero.full_gradients()) seen.push_back(gradient);
    zero.step();
    EXPECT_TRUE(zero.broken_invariants().empty()) << zero.broken_invariants().front();
  }
  for (const auto& [name, parameter] : zero.full_parameters()) seen.push_back(parameter);
  return seen;
}

class Zero3Prefetch : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Zero3Prefetch, ::testing::Values(1, 2, 4));

TEST_P(Zero3Prefetch, LeavesEveryBitAsItIs) {
  using enum Path;
  const std::vector<std::vector<Path>> runs{
      {plain, plain, plain, plain},
      {plain, norm_twice, plain, without_norm, plain, plain},
      {plain, evaluation, plain, plain, evaluation, evaluation, plain},
      {evaluation, plain, plain, plain},
  };
  on_ranks(GetParam(), [&](comm::World& world) {
    for (const auto& paths : runs) {
      const auto want = train(world, nothing_ahead(), paths);
      for (const BackendOptions& options : all_options()) {
        const auto got = train(world, options, paths);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(want[i])) << i;
      }
    }
  });
}

TEST_P(Zero3Prefetch, AChangedPathHasTheUnshardedGradients) {
  on_ranks(GetParam(), [&](comm::World& world) {
    for (const BackendOptions& options : all_options()) {
      BackendOptions still = options;
      still.optimizer.lr = 0;
      still.optimizer.weight_decay = 0;
      SmallModel model;
      Zero3 zero(world, model, still);
      for (const Path path : {Path::plain, Path::norm_twice, Path::plain, Path::plain, Path::without_norm}) {
        zero.zero_gradients();
        zero.backward(zero.forward([&] { return run_path(model, path, world.rank()); }));
        SmallModel whole;
        for (int rank = 0; rank < world.size(); ++rank) (run_path(whole, path, rank) / world.size()).backward();
        const auto parameters = whole.parameters();
        const Named got = zero.full_gradients();
        for (size_t i = 0; i < got.size(); ++i) {
          // The norm's shard keeps its last gradient when no new one comes.
          if (!parameters[i].grad().defined()) continue;
          EXPECT_LT(relative(got[i].second, parameters[i].grad()), 1e-6) << got[i].first;
        }
        zero.step();
      }
    }
  });
}

TEST(Zero3Prefetch, TheGatherStartsBeforeTheModuleRuns) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Zero3 zero(world, model, small_bucket());
    const auto& states = zero.partition().states();
    for (int step = 0; step < 3; ++step) {
      const int64_t ahead = zero.coordinator().prefetches;
      const at::Tensor loss = zero.forward([&] {
        EXPECT_EQ(zero.coordinator().prefetches - ahead, step == 0 ? 0 : 1) << "as much as the bucket takes";
        EXPECT_EQ(states[0]->status, step == 0 ? Status::not_available : Status::inflight) << "first.weight";
        const at::Tensor x = (*model.first)(rank_input(world.rank()));
        EXPECT_EQ(states[2]->status, step == 0 ? Status::not_available : Status::inflight) << "norm.weight";
        return (*model.second)((*model.norm)(x)).square().sum();
      });
      zero.backward(loss);
      zero.step();
    }
    EXPECT_EQ(zero.counters().at("prefetches"), 10);
    EXPECT_EQ(zero.counters().at("prefetches_unused"), 0);
    EXPECT_TRUE(zero.observations().empty());
  });
}

TEST(Zero3Prefetch, WhatAnEvaluationLeavesInFlightIsSeenAndFreed) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Zero3 zero(world, model, small_bucket());
    const auto forward = [&] { return zero.forward([&] { return run_path(model, Path::plain, world.rank()); }); };
    zero.backward(forward());
    zero.step();
    {
      const at::NoGradGuard no_grad;
      forward();
    }
    const auto broken = zero.broken_invariants();
    EXPECT_EQ(broken.size(), 4U);
    EXPECT_EQ(broken.front(), "first.weight is still in flight");
    zero.backward(forward());
    EXPECT_EQ(zero.coordinator().prefetches_unused, 2) << "two were gathered for a backward that never came";
    zero.step();
    EXPECT_TRUE(zero.broken_invariants().empty()) << zero.broken_invariants().front();
  });
}

// An evaluation that ran a longer way than the record departs from it; one that ran its beginning does not.
TEST(Zero3Prefetch, ADepartureFromTheRecordIsObserved) {
  on_ranks(2, [&](comm::World& world) {
    for (const Path path : {Path::plain, Path::evaluation, Path::norm_twice, Path::without_norm}) {
      SmallModel model;
      Zero3 zero(world, model, {});
      for (const Path next : {Path::plain, Path::plain, path, Path::plain}) {
        const at::AutoGradMode mode(next != Path::evaluation);
        const at::Tensor loss = zero.forward([&] { return run_path(model, next, world.rank()); });
        if (next == Path::evaluation) continue;
        zero.backward(loss);
        zero.step();
      }
      const bool departs = path == Path::norm_twice || path == Path::without_norm;
      ASSERT_EQ(zero.observations().size(), departs ? 1U : 0U);
      if (departs) {
        EXPECT_EQ(zero.observations()[0].mechanism, "trace_stale");
      }
    }
  });
}

// Nobody waits for it: as upstream, a read registers what is partitioned, and only that.
TEST(Zero3Prefetch, AReadOfWhatIsInFlightMeetsWhatIsThere) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Zero3 zero(world, model, small_bucket());
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = zero.forward([&] {
        // Alone in its gather: the buffer, whatever has arrived.
        if (step == 1) {
          EXPECT_EQ(model.first->weight().sizes(), (std::vector<int64_t>{5, 3}));
        }
        const at::Tensor x = (*model.first)(rank_input(world.rank()));
        // In company: empty.
        if (step == 1) {
          EXPECT_EQ(model.second->weight().sizes(), std::vector<int64_t>{0});
        }
        return (*model.second)((*model.norm)(x)).square().sum();
      });
      zero.backward(loss);
      zero.step();
    }
    ASSERT_EQ(zero.observations().size(), 2U);
    for (const Observation& seen : zero.observations()) EXPECT_EQ(seen.mechanism, "head_read_inflight");
  });
}

// The ranks compare their orders only while they record: later, one that departs from the order gathers other
// parameters than the rest, and the collectives no longer fit. Loud, but no longer by name.
TEST(Zero3Prefetch, ARankThatDepartsAloneEndsInAMismatch) {
  comm::LaunchOptions launch;
  launch.deadline = std::chrono::milliseconds(3000);
  const auto ends = comm::run_threads(launch, [&](comm::World& world) {
    SmallModel model;
    Zero3 zero(world, model, small_bucket());
    for (int step = 0; step < 3; ++step) {
      const Path path = step == 2 && world.rank() == 1 ? Path::without_norm : Path::plain;
      zero.backward(zero.forward([&] { return run_path(model, path, world.rank()); }));
      zero.step();
    }
    return std::string("done");
  });
  for (const auto& end : ends) EXPECT_NE(end.result, "done");
}

// The model's own forward came first and called the head as a module; then the loss reads the head directly. The head
// has been gathered ahead, so the read registers nothing; the pass ends without the head's module, which makes the
// record stale, and what was gathered ahead is freed before the head's gradient arrives. deepspeed 0.19.2 fails so
// whenever it gathers ahead, with the head gathered for the loss or not.
TEST(Zero3Prefetch, AnEvaluationBeforeADirectReadTakesTheHeadAway) {
  on_ranks(2, [&](comm::World& world) {
    for (const BackendOptions& options : {BackendOptions{}, small_bucket(), nothing_ahead()}) {
      SmallModel model;
      Zero3 zero(world, model, options);
      {
        const at::NoGradGuard no_grad;
        zero.forward([&] { return run_path(model, Path::plain, world.rank()); });
      }
      const at::Tensor loss = zero.forward([&] {
        const at::Tensor hidden = (*model.norm)((*model.first)(rank_input(world.rank())));
        const at::Tensor weight = model.second->weight();
        EXPECT_TRUE(zero.is_whole(weight));
        return hidden.matmul(weight.t()).square().sum();
      });
      if (options.prefetch_bucket_size == 0) {
        zero.backward(loss);
        zero.step();
        EXPECT_TRUE(zero.broken_invariants().empty());
        continue;
      }
      EXPECT_THROW(zero.backward(loss), std::exception);
      ASSERT_EQ(zero.observations().size(), 2U);
      EXPECT_EQ(zero.observations()[0].mechanism, "trace_stale");
      EXPECT_EQ(zero.observations()[1].mechanism, "head_grad_on_partitioned");
    }
  });
}

// recompute_hold concerns frozen parameters alone: where there are none, memory and traffic are the same to the byte.
TEST(Zero3Prefetch, RecomputeHoldCostsNothingWhereNothingIsFrozen) {
  autograd::install_engine();
  on_ranks(2, [&](comm::World& world) {
    for (BackendOptions options : all_options()) {
      std::vector<std::array<int64_t, 4>> numbers;
      for (const bool held : {false, true}) {
        options.release = held ? std::make_shared<fixes::RecomputeHold>() : std::make_shared<ReleasePolicy>();
        SmallModel model;
        Zero3 zero(world, model, options);
        for (int step = 0; step < 3; ++step) {
          zero.zero_gradients();
          zero.backward(zero.forward([&] {
            const autograd::Block block = [&](const at::Tensor& x) { return model.forward(x); };
            return autograd::checkpoint_nonreentrant(block, rank_input(world.rank())).square().sum();
          }));
          zero.step();
        }
        const Partition& partition = zero.partition();
        numbers.push_back(
            {partition.peak_gathered_bytes, partition.gathered_bytes, partition.gathers, partition.releases});
        EXPECT_GT(partition.peak_gathered_bytes, 0);
      }
      EXPECT_EQ(numbers[0], numbers[1]);
    }
  });
}

}  // namespace
}  // namespace regather::shard
