// What ZeRO-3 has gathered, submodule by submodule, against what DeepSpeed 0.19.2 had
// (tests/golden/make_zero3_trace.py).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <sstream>

#include "autograd/boundary.h"
#include "autograd/checkpoint.h"
#include "autograd/saved_hooks.h"
#include "shard/zero/zero3.h"
#include "tests/shard/small_model.h"

namespace regather::shard {
namespace {

struct Thrown : std::exception {};

struct Scenario {
  std::string header;  // "== NAME: LIMITS"
  BackendOptions options;
  bool norm_is_frozen = false;
  std::vector<std::string> passes;  // "KIND ..."
};

std::vector<Scenario> read_scenarios() {
  std::vector<Scenario> scenarios;
  std::ifstream file(REGATHER_SOURCE_DIR "/tests/data/golden/zero3-trace.txt");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("==")) {
      scenarios.back().passes.push_back(line);
      continue;
    }
    BackendOptions options;
    std::istringstream limits(line.substr(line.find(':') + 1));
    limits >> options.persistence_threshold >> options.prefetch_bucket_size >> options.max_live_parameters >>
        options.max_reuse_distance;
    int norm_is_frozen = 0;
    limits >> norm_is_frozen;
    scenarios.push_back({line, options, norm_is_frozen == 1, {}});
  }
  return scenarios;
}

// Runs passes and writes each as the golden file does.
class Watched {
 public:
  Watched(comm::World& world, const Scenario& scenario) : rank_(world.rank()) {
    model_.norm->parameters()[0].set_requires_grad(!scenario.norm_is_frozen);
    for_each_module([this](model::Module& module, char letter) {
      // Beneath the backend's own node, so that it runs right after that one's fetch.
      module.add_post_forward([this, letter](model::Module&, const at::Tensor& y) {
        return y.defined() ? autograd::boundary(y, [this, letter] { note('B', letter); }) : y;
      });
    });
    zero_ = std::make_unique<Zero3>(world, model_, scenario.options);
    for_each_module([this](model::Module& module, char letter) {
      module.add_pre_forward([this, letter](model::Module&, const at::Tensor& x) {
        note('F', letter);
        return x;
      });
    });
  }

  std::string pass(char kind) {
    fetches_.clear();
    const Numbers before = numbers();
    bool failed = false;
    try {
      run(kind);
    } catch (const std::exception&) {
      failed = true;
    }
    const Numbers after = numbers();
    return fmt::format("{} {} -> {}; gathers {}, ahead {}, releases {}, stale {}{}", kind, fmt::join(fetches_, "; "),
                       states(), after[0] - before[0], after[1] - before[1], after[2] - before[2], after[3] - before[3],
                       failed ? "; fails" : "");
  }

 private:
  using Numbers = std::array<int64_t, 4>;

  void for_each_module(const std::function<void(model::Module&, char)>& function) {
    function(model_, 'r');
    function(*model_.first, 'f');
    function(*model_.norm, 'n');
    function(*model_.second, 's');
  }

  std::string states() const {
    std::string letters;
    for (const auto& state : zero_->partition().states()) letters += ".ia"[static_cast<int>(state->status)];
    return letters;
  }

  void note(char direction, char letter) { fetches_.push_back(fmt::format("{}{} {}", direction, letter, states())); }

  Numbers numbers() const {
    const auto& seen = zero_->observations();
    return {zero_->partition().gathers, zero_->coordinator().prefetches, zero_->partition().releases,
            std::count_if(seen.begin(), seen.end(), [](const auto& o) { return o.mechanism == "trace_stale"; })};
  }

  at::Tensor checkpointed(char kind) {
    const autograd::Block block = [this](const at::Tensor& x) { return model_.forward(x); };
    const at::Tensor x = rank_input(rank_).requires_grad_();
    if (kind == 'R') return autograd::checkpoint_reentrant(block, x);
    return autograd::checkpoint_nonreentrant(block, x, {.determinism_check = kind == 'C'});
  }

  at::Tensor body(char kind) {
    if (kind == 'C' || kind == 'R' || kind == 'U') return checkpointed(kind);
    at::Tensor x = (*model_.first)(rank_input(rank_));
    const at::Tensor head = model_.second->weight_handle();
    if (kind == 'Y') throw Thrown();
    if (kind == 'G') zero_->gathered({head}, [] { return at::Tensor(); });
    if (kind != 'S') x = (*model_.norm)(x);
    if (kind == 'W') x = (*model_.norm)(x);
    if (kind == 'X') throw Thrown();
    if (kind == 'H') zero_->gathered({head}, [] { return at::Tensor(); });
    if (kind == 'Z') x = autograd::boundary(x, [] { throw Thrown(); });
    if (kind == 'D') return at::matmul(x, model_.second->weight().t());
    const at::Tensor y = (*model_.second)(x);
    if (kind == 'L') return y + 0 * model_.norm->read(model_.norm->parameters()[0]).sum();
    return y;
  }

  void run(char kind) {
    const at::AutoGradMode mode(kind != 'E');
    const at::Tensor loss = zero_->forward([&] { return body(kind).square().sum(); });
    if (kind == 'E') return;
    zero_->backward(loss);
    if (kind != 'A') zero_->step();
  }

  int rank_;
  SmallModel model_;
  std::unique_ptr<Zero3> zero_;
  std::vector<std::string> fetches_;
};

class Zero3Trace : public ::testing::TestWithParam<Scenario> {};
INSTANTIATE_TEST_SUITE_P(Upstream, Zero3Trace, ::testing::ValuesIn(read_scenarios()), [](const auto& scenario) {
  std::string name;
  for (const char c : scenario.param.header.substr(3, scenario.param.header.find(':') - 3)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
});

TEST_P(Zero3Trace, HasGatheredWhatDeepSpeedHad) {
  autograd::install_engine();
  on_ranks(2, [&](comm::World& world) {
    Watched watched(world, GetParam());
    for (const std::string& pass : GetParam().passes) EXPECT_EQ(watched.pass(pass[0]), pass);
  });
}

TEST(Zero3TraceFile, IsThere) { EXPECT_GT(read_scenarios().size(), 30U); }

}  // namespace
}  // namespace regather::shard
