// A model of a few parameters to wrap, and a world to run it in.
#pragma once

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/random.h"
#include "comm/launch.h"
#include "model/layers.h"

namespace regather::shard {

// x -> second(norm(first(x))); 5 is not divisible by 2 or 4, so shards are padded.
class SmallModel : public model::Module {
 public:
  SmallModel() {
    first = register_module("first", std::make_shared<model::Linear>(3, 5, true));
    norm = register_module("norm", std::make_shared<model::RmsNorm>(5, 1e-6));
    second = register_module("second", std::make_shared<model::Linear>(5, 2, false));
    Random random(3);
    for (const auto& parameter : parameters()) {
      auto flat = parameter.detach().view({-1});
      for (int64_t i = 0; i < flat.numel(); ++i) flat[i] = random.normal();
    }
  }
  at::Tensor forward(const at::Tensor& x) override { return (*second)((*norm)((*first)(x))); }

  std::shared_ptr<model::Linear> first;
  std::shared_ptr<model::RmsNorm> norm;
  std::shared_ptr<model::Linear> second;
};

// This rank's input, the same on every run.
inline at::Tensor rank_input(int rank) {
  Random random(17, static_cast<uint64_t>(rank));
  at::Tensor x = at::ones({4, 3});
  for (int64_t i = 0; i < 12; ++i) x.view({-1})[i] = random.normal();
  return x;
}

// Runs `function` on every rank and fails the test for each rank that ends with an error.
inline void on_ranks(int world, const std::function<void(comm::World&)>& function) {
  comm::LaunchOptions options;
  options.world = world;
  options.deadline = std::chrono::milliseconds(10000);
  const auto ends = comm::run_threads(options, [&](comm::World& each) {
    function(each);
    return std::string("done");
  });
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank].result, "done") << "rank " << rank << ": " << ends[rank].error_type << ": "
                                         << ends[rank].error_text;
  }
}

// Mean over ranks of each parameter's gradient of sum(model(x)^2), unsharded, in registration order.
inline std::vector<at::Tensor> mean_gradients(int world) {
  SmallModel model;
  for (int rank = 0; rank < world; ++rank) (model(rank_input(rank)).square().sum() / world).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

inline double relative(const at::Tensor& got, const at::Tensor& want) {
  return ((got - want).norm() / want.norm()).item<double>();
}

}  // namespace regather::shard
