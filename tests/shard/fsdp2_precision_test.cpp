// FSDP2's mixed precision: which dtype travels, computes, is reduced, is kept, and what a unit is given.
#include <ATen/ops/arange.h>

#include <array>

#include "base/error.h"
#include "model/qwen2.h"
#include "shard/fsdp2/fsdp2.h"
#include "shard/fsdp2/sharded_tensor.h"
#include "tests/shard/small_model.h"

namespace regather::shard {
namespace {

using model::Module;

constexpr MixedPrecision kBf16{.param_dtype = at::kBFloat16};
constexpr MixedPrecision kBf16Fp32{.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};

at::Tensor loss_of(SmallModel& model, int rank) {
  return model.forward(rank_input(rank).to(at::kBFloat16)).to(at::kFloat).square().sum();
}

at::Tensor wrapped_loss(Fsdp2& fsdp, SmallModel& model, int rank) {
  return fsdp.forward([&, rank] { return loss_of(model, rank); });
}

// What one rank computes without any sharding, in bfloat16.
std::vector<at::Tensor> own_gradients(int rank) {
  SmallModel model;
  model.to(at::kBFloat16);
  loss_of(model, rank).backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

void expect_equal(const Named& got, const std::vector<at::Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].second.defined()) << got[i].first;
    EXPECT_TRUE(got[i].second.equal(want[i])) << got[i].first << ": " << relative(got[i].second, want[i]);
  }
}

TEST(Precision, WholeParametersComputeInItAndShardsKeepTheirOwn) {
  on_ranks(2, [](comm::World& world) {
    for (const MixedPrecision& precision : {kBf16, kBf16Fp32}) {
      SmallModel model;
      Fsdp2 fsdp(world, model, {.precision = precision}, {model.first.get()});
      const at::Tensor sharded = model.first->weight_handle();
      EXPECT_EQ(sharded.scalar_type(), at::kFloat);
      model.first->add_pre_forward([&](Module&, const at::Tensor& x) {
        EXPECT_EQ(model.first->weight_handle().scalar_type(), at::kBFloat16);
        return x;
      });
      fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
      EXPECT_EQ(local_shard(sharded.grad()).scalar_type(), at::kFloat);
      fsdp.step();
      for (const auto& [name, parameter] : fsdp.full_parameters()) {
        EXPECT_EQ(parameter.scalar_type(), at::kFloat) << name;
      }
      EXPECT_TRUE(fsdp.broken_invariants().empty());
    }
  });
}

TEST(Precision, ReducesInTheReduceDtypeOrElseInTheGradients) {
  const auto rank0 = own_gradients(0);
  const auto rank1 = own_gradients(1);
  on_ranks(2, [&](comm::World& world) {
    std::vector<at::Tensor> in_bf16;
    std::vector<at::Tensor> in_fp32;
    for (size_t i = 0; i < rank0.size(); ++i) {
      in_bf16.push_back(((rank0[i] + rank1[i]) / 2).to(at::kFloat));
      in_fp32.push_back((rank0[i].to(at::kFloat) + rank1[i].to(at::kFloat)) / 2);
    }
    for (const bool apart : {false, true}) {
      SmallModel model;
      Fsdp2 fsdp(world, model, {.precision = apart ? kBf16Fp32 : kBf16}, {model.first.get()});
      for (int step = 0; step < 2; ++step) {
        fsdp.zero_gradients();
        fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
        expect_equal(fsdp.full_gradients(), apart ? in_fp32 : in_bf16);
      }
    }
    EXPECT_FALSE(in_bf16[0].equal(in_fp32[0])) << "the two are told apart";
  });
}

TEST(Precision, BytesOfCollectivesAndOfWholeParameters) {
  on_ranks(2, [](comm::World& world) {
    // first 15 + 5, norm 5, second 10 elements; padded to two ranks 9 + 3, 3, 5 a rank.
    const auto run = [&](const MixedPrecision& precision) {
      const auto before = world.counts();
      const auto bytes = [&](const std::string& kind) {
        const auto had = before.find(kind);
        return world.counts().at(kind).bytes - (had == before.end() ? 0 : had->second.bytes);
      };
      SmallModel model;
      Fsdp2 fsdp(world, model, {.precision = precision}, {model.first.get()});
      fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
      fsdp.step();
      return std::array<int64_t, 3>{bytes("all_gather"), bytes("reduce_scatter"),
                                    static_cast<int64_t>(fsdp.counters().at("peak_gathered_bytes"))};
    };
    const int64_t gathered = 2 * (9 + 3) + 3 + 5;
    EXPECT_EQ(run(kBf16), (std::array<int64_t, 3>{2 * gathered, 2 * 40, 2 * 35}));
    EXPECT_EQ(run(kBf16Fp32), (std::array<int64_t, 3>{2 * gathered, 4 * 40, 2 * 35}));
    EXPECT_EQ(run({.param_dtype = at::kFloat}), (std::array<int64_t, 3>{4 * gathered, 4 * 40, 4 * 35}));
  });
}

TEST(Precision, TheStepIsAdamWOnFloat32Shards) {
  const auto rank0 = own_gradients(0);
  const auto rank1 = own_gradients(1);
  on_ranks(2, [&](comm::World& world) {
    SmallModel whole;
    SmallModel model;
    Fsdp2 fsdp(world, model, {.precision = kBf16Fp32}, {model.first.get()});
    fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    fsdp.step();
    const auto parameters = whole.parameters();
    const Named got = fsdp.full_parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      AdamWState state;
      at::Tensor parameter = parameters[i].detach();
      adamw(parameter, (rank0[i].to(at::kFloat) + rank1[i].to(at::kFloat)) / 2, state, {});
      EXPECT_LT(relative(got[i].second, parameter), 1e-6) << got[i].first;
    }
  });
}

TEST(Precision, GradientsThatWaitDoSoInTheReduceDtype) {
  const auto rank0 = own_gradients(0);
  const auto rank1 = own_gradients(1);
  on_ranks(2, [&](comm::World& world) {
    std::vector<at::Tensor> in_fp32;
    std::vector<at::Tensor> in_bf16;
    // Three micro-batches that are alike: a third bfloat16 sum has to round.
    for (size_t i = 0; i < rank0.size(); ++i) {
      in_fp32.push_back((rank0[i].to(at::kFloat) * 3 + rank1[i].to(at::kFloat) * 3) / 2);
      in_bf16.push_back(((rank0[i] + rank0[i] + rank0[i] + (rank1[i] + rank1[i] + rank1[i])) / 2).to(at::kFloat));
    }
    for (const bool apart : {false, true}) {
      SmallModel model;
      Fsdp2 fsdp(world, model, {.precision = apart ? kBf16Fp32 : kBf16}, {model.first.get()});
      for (int batch = 0; batch < 3; ++batch) {
        fsdp.set_requires_gradient_sync(batch == 2);
        fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
        EXPECT_EQ(fsdp.broken_invariants().empty(), batch == 2);
      }
      expect_equal(fsdp.full_gradients(), apart ? in_fp32 : in_bf16);
    }
    EXPECT_FALSE(in_bf16[0].equal(in_fp32[0])) << "the two are told apart";
  });
}

TEST(Precision, Float16IsDividedBeforeTheSum) {
  class Scale : public Module {
   public:
    Scale() { weight = register_parameter("weight", at::ones({4})); }
    at::Tensor forward(const at::Tensor& x) override { return x * own_parameter("weight"); }
    at::Tensor weight;
  };
  for (const int ranks : {2, 3, 4}) {
    on_ranks(ranks, [](comm::World& world) {
      Scale model;
      Fsdp2 fsdp(world, model, {.precision = {.param_dtype = at::kHalf}}, {});
      const double each = world.size() == 4 ? 30000 : 40000;  // the sum over ranks is beyond float16
      const at::Tensor x = at::ones({4}, at::kHalf) * each;
      fsdp.backward(fsdp.forward([&] { return model.forward(x).to(at::kFloat).sum(); }));
      EXPECT_LT(relative(fsdp.full_gradients()[0].second, at::ones({4}) * each), 1e-3);
    });
  }
}

TEST(Precision, AUnitsFloatingInputsAreCastAndNoOthers) {
  on_ranks(2, [](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {.precision = kBf16}, {model.first.get()});
    std::vector<at::ScalarType> seen;
    const auto look = [&](Module& module, const at::Tensor& x) {
      if (x.defined()) seen.push_back(x.scalar_type());
      static_cast<void>(module);
      return x;
    };
    model.first->add_pre_forward(look);
    model.add_pre_forward(look);
    fsdp.forward([&] { return (*model.first)(rank_input(world.rank())); });
    fsdp.forward([&] { return (*model.first)(rank_input(world.rank()).to(at::kDouble)); });
    const auto root = [&](const at::Tensor& x) { model.call(x, [](const at::Tensor& value) { return value; }); };
    root(at::arange(3));
    root(at::ones({3}, at::kBool));
    root(at::ones({3}));
    EXPECT_EQ(seen, (std::vector<at::ScalarType>{at::kBFloat16, at::kBFloat16, at::kLong, at::kBool, at::kBFloat16}));

    SmallModel uncast;
    Fsdp2 as_it_is(world, uncast, {.precision = {.param_dtype = at::kBFloat16, .cast_forward_inputs = false}},
                   {uncast.first.get()});
    EXPECT_THROW(as_it_is.forward([&] { return (*uncast.first)(rank_input(world.rank())); }), c10::Error);
  });
}

TEST(Precision, HooksOnTheModelsOwnParametersStillFireOnce) {
  on_ranks(2, [](comm::World& world) {
    SmallModel model;
    std::map<std::string, int> calls;
    for (const auto& item : model.named_parameters()) {
      item.value().register_hook([&, name = item.key()](const at::Tensor& gradient) {
        ++calls[name];
        EXPECT_EQ(gradient.scalar_type(), at::kBFloat16);
      });
    }
    Fsdp2 fsdp(world, model, {.precision = kBf16}, {model.first.get()});
    fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    EXPECT_EQ(calls.size(), 4U);
    for (const auto& [name, count] : calls) EXPECT_EQ(count, 1) << name;
  });
}

TEST(Precision, TrainableParametersOfAUnitHaveOneDtypeAndFrozenOnesMayDiffer) {
  on_ranks(2, [](comm::World& world) {
    SmallModel mixed;
    mixed.first->parameters()[1].set_data(mixed.first->parameters()[1].detach().to(at::kBFloat16));
    Fsdp2 fsdp(world, mixed, {}, {mixed.first.get()});
    try {
      fsdp.forward([&] { return mixed.forward(rank_input(world.rank())); });
      ADD_FAILURE() << "expected an error at the first forward";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "one unit trains 'first.weight' in Float and 'first.bias' in BFloat16: its gradients are reduced "
                "together, in one dtype");
    }

    SmallModel model;
    const at::Tensor bias = model.first->parameters()[1].detach().to(at::kBFloat16);
    model.first->parameters()[1].set_requires_grad(false);
    model.first->parameters()[1].set_data(bias.clone());
    Fsdp2 frozen(world, model, {}, {model.first.get()});
    EXPECT_TRUE(frozen.full_parameters()[1].second.equal(bias));
    frozen.forward([&] {
      return model.first->call(rank_input(world.rank()), [&](const at::Tensor& x) {
        EXPECT_TRUE(model.first->bias_handle().equal(bias)) << "gathered as bytes beside float32";
        EXPECT_EQ(model.first->weight_handle().scalar_type(), at::kFloat);
        return x;
      });
    });
  });
}

// What a decoder layer takes besides its hidden states is cast with them.
TEST(Precision, PositionsAndMaskOfALayerAreCast) {
  on_ranks(2, [](comm::World& world) {
    model::Config config;
    config.vocab = 16;
    config.hidden = 8;
    config.intermediate = 8;
    config.layers = 2;
    config.heads = config.kv_heads = 2;
    model::CausalLM model(config);
    model::initialise(model, 3);
    // float32 into the first layer, and with it cosines, sines and mask of every layer.
    model.backbone().embedding().add_post_forward([](Module&, const at::Tensor& y) { return y.to(at::kFloat); });
    Fsdp2 fsdp(world, model, {.precision = kBf16});
    const at::Tensor ids = at::arange(8).view({2, 4});
    const at::Tensor loss = fsdp.forward([&] { return model.forward(ids).to(at::kFloat).square().sum(); });
    fsdp.backward(loss);
    for (const auto& [name, gradient] : fsdp.full_gradients()) {
      ASSERT_TRUE(gradient.defined()) << name;
      EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << name;
    }
  });
}

}  // namespace
}  // namespace regather::shard
