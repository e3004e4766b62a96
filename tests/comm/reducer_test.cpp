// The real DDP core over the shared-memory transport.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>

#include "base/random.h"
#include "tests/comm/ranks.h"

namespace regather::comm {
namespace {

at::Tensor filled(uint64_t seed, at::IntArrayRef sizes) {
  Random random(seed);
  at::Tensor tensor = at::zeros(sizes, at::kDouble);
  double* data = tensor.mutable_data_ptr<double>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = random.normal();
  return tensor;
}

std::vector<at::Tensor> parameters() {
  std::vector<at::Tensor> all{filled(1, {7, 5}), filled(2, {7}), filled(3, {3, 7})};
  for (at::Tensor& parameter : all) parameter.requires_grad_(true);
  return all;
}

at::Tensor loss_of(const std::vector<at::Tensor>& weights, int rank, int step) {
  const at::Tensor input = filled(static_cast<uint64_t>(100 + rank * 10 + step), {4, 5});
  return input.matmul(weights[0].t()).add(weights[1]).tanh().matmul(weights[2].t()).pow(2).mean();
}

void reduce_two_steps(int size, bool bucket_views, bool many_buckets) {
  on_ranks(size, [&](World& world) {
    std::vector<at::Tensor> weights = parameters();
    std::vector<std::vector<size_t>> buckets{{2, 1, 0}};
    if (many_buckets) buckets = {{2}, {1}, {0}};
    c10d::Reducer reducer(weights, buckets, world.group(), std::vector<bool>(weights.size(), false),
                          many_buckets ? 1 : c10d::kDefaultBucketBytesCap, false, bucket_views, {},
                          many_buckets ? 1 : c10d::kDefaultFirstBucketBytes, false, false, {});
    for (int step = 0; step < 3; ++step) {
      for (at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
      reducer.prepare_for_forward();
      reducer.rebuild_buckets();
      const at::Tensor loss = loss_of(weights, world.rank(), step);
      reducer.prepare_for_backward({});
      loss.backward();

      std::vector<at::Tensor> plain = parameters();
      at::Tensor total = at::zeros({}, at::kDouble);
      for (int rank = 0; rank < size; ++rank) total = total + loss_of(plain, rank, step);
      total.div(size).backward();
      for (size_t index = 0; index < weights.size(); ++index) {
        EXPECT_TRUE(weights[index].grad().allclose(plain[index].grad(), 1e-12, 1e-14))
            << "world " << size << " step " << step << " parameter " << index;
      }
    }
    EXPECT_GE(world.counts().at("all_reduce").calls, many_buckets ? 9 : 3);
  });
}

TEST(Reducer, AveragesGradientsOverRanks) {
  for (const int size : {1, 2, 4}) {
    for (const bool views : {false, true}) {
      for (const bool many : {false, true}) reduce_two_steps(size, views, many);
    }
  }
}

TEST(Reducer, ARankThatSkipsBackwardIsNamed) {
  const auto ends = run_threads({2, std::chrono::milliseconds(60000)}, [](World& world) {
    std::vector<at::Tensor> weights = parameters();
    c10d::Reducer reducer(weights, {{2, 1, 0}}, world.group(), {false, false, false}, c10d::kDefaultBucketBytesCap,
                          false, false, {}, c10d::kDefaultFirstBucketBytes, false, false, {});
    reducer.prepare_for_backward({});
    if (world.rank() == 0) loss_of(weights, 0, 0).backward();
    return std::string();
  });
  EXPECT_EQ(ends[0].error_type, "regather::comm::PeerError");
  EXPECT_NE(ends[0].error_text.find("rank 1 returned"), std::string::npos) << ends[0].error_text;
  EXPECT_EQ(ends[1].error_type, "");
}

TEST(Reducer, SyncsParametersThroughTheGroup) {
  on_ranks(4, [](World& world) {
    std::vector<at::Tensor> tensors{filled(static_cast<uint64_t>(world.rank()), {9}),
                                    filled(static_cast<uint64_t>(world.rank() + 50), {2, 2})};
    c10d::verify_params_across_processes(world.group(), tensors, std::nullopt);
    c10d::broadcast_coalesced(world.group(), tensors, 64, 0);
    EXPECT_TRUE(tensors[0].equal(filled(0, {9})));
    EXPECT_TRUE(tensors[1].equal(filled(50, {2, 2})));
  });
}

}  // namespace
}  // namespace regather::comm
