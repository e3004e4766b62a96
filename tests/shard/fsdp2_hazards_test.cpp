// What goes wrong with FSDP2 where somebody reads, reruns or calls around its units, and each fix beside it.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>

#include "autograd/checkpoint.h"
#include "autograd/saved_hooks.h"
#include "fixes/forward_method.h"
#include "fixes/recompute_cast.h"
#include "fixes/recompute_rearm.h"
#include "fixes/recompute_unshard.h"
#include "fixes/unshard_head.h"
#include "model/qwen2.h"
#include "shard/fsdp2/fsdp2.h"
#include "shard/fsdp2/sharded_tensor.h"
#include "tests/shard/small_model.h"
#include "train/head_full_tensor.h"

namespace regather::shard {
namespace {

using model::Module;

const std::string kMixed =
    " got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed "
    "operators!";

std::string text_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

bool saw(const Fsdp2& fsdp, const std::string& mechanism) {
  return std::ranges::any_of(fsdp.observations(), [&](const Observation& o) { return o.mechanism == mechanism; });
}

// The relative errors of the gradients against `scale` times the mean over ranks, by registration.
std::vector<double> errors(Fsdp2& fsdp, double scale = 1) {
  const auto want = mean_gradients(2);
  const Named got = fsdp.full_gradients();
  std::vector<double> result;
  for (size_t i = 0; i < want.size(); ++i) {
    result.push_back(got[i].second.defined() ? relative(got[i].second, want[i] * scale) : 1);
  }
  return result;
}

void expect_right(Fsdp2& fsdp, double scale = 1, double tolerance = 1e-6) {
  for (const double error : errors(fsdp, scale)) EXPECT_LT(error, tolerance);
  const auto broken = fsdp.broken_invariants();
  EXPECT_TRUE(broken.empty()) << broken.front();
}

// ---- The head is a unit of its own, and a loss reads its weight inside the root's forward.

struct HeadUnit {
  explicit HeadUnit(comm::World& of, const MixedPrecision& precision = {})
      : world(of), fsdp(of, model, {.precision = precision}, {model.second.get()}) {}

  at::Tensor loss(loss::HeadScope& scope) {
    return fsdp.forward([&] {
      const at::Tensor x = rank_input(world.rank()).to(fsdp.precision().param_dtype.value_or(at::kFloat));
      const at::Tensor hidden = (*model.norm)((*model.first)(x));
      return scope.around({model.second->weight()}, [&](const std::vector<at::Tensor>& head) {
        return hidden.matmul(head[0].t()).to(at::kFloat).square().sum();
      });
    });
  }
  // As trainers do: only the last of the micro-batches reduces.
  void accumulate(loss::HeadScope& scope) {
    fsdp.set_requires_gradient_sync(false);
    fsdp.backward(loss(scope));
    fsdp.set_requires_gradient_sync(true);
    fsdp.backward(loss(scope));
  }

  comm::World& world;
  SmallModel model;
  Fsdp2 fsdp;
};

TEST(HeadAsItsOwnUnit, TheOptionMakesACausalLmsHeadOne) {
  on_ranks(2, [](comm::World& world) {
    for (const bool head_unit : {false, true}) {
      model::CausalLM model(model::Config{.vocab = 16, .hidden = 8, .intermediate = 8});
      EXPECT_EQ(default_units(model, head_unit).size(), head_unit ? 3U : 2U);
      Fsdp2 fsdp(world, model, {.head_unit = head_unit});
      const at::NoGradGuard no_grad;
      fsdp.forward([&] {
        EXPECT_TRUE(fsdp.is_whole(model.backbone().embedding().weight_handle()));
        EXPECT_EQ(fsdp.is_whole(model.head().weight_handle()), !head_unit);
        return at::Tensor();
      });
    }
  });
}

TEST(HeadAsItsOwnUnit, ReadAsItIsMeetsPlainHiddenStates) {
  on_ranks(2, [](comm::World& world) {
    HeadUnit head(world);
    loss::HeadScope as_it_is;
    EXPECT_EQ(text_of([&] { head.loss(as_it_is); }), "aten.mm.default" + kMixed);
    EXPECT_TRUE(saw(head.fsdp, "mixed_dtensor"));
  });
}

TEST(HeadAsItsOwnUnit, ThroughItsFullTensorTheHeadsGradientAloneIsWrong) {
  on_ranks(2, [](comm::World& world) {
    HeadUnit head(world);
    train::HeadFullTensor full(head.fsdp);
    for (int step = 0; step < 2; ++step) {
      head.fsdp.zero_gradients();
      head.fsdp.backward(head.loss(full));
      const auto error = errors(head.fsdp);
      for (size_t i = 0; i < 3; ++i) EXPECT_LT(error[i], 1e-6);
      EXPECT_GT(error[3], 0.1);
      EXPECT_TRUE(saw(head.fsdp, "unit_bypassed"));
    }
    head.fsdp.zero_gradients();
    head.accumulate(full);
    EXPECT_GT(errors(head.fsdp, 2)[3], 0.1);
  });
}

TEST(HeadAsItsOwnUnit, UnshardedFirstItIsRight) {
  on_ranks(2, [](comm::World& world) {
    HeadUnit head(world);
    fixes::UnshardHead unshard(head.fsdp);
    for (int step = 0; step < 2; ++step) {
      head.fsdp.zero_gradients();
      const at::Tensor loss = head.loss(unshard);
      EXPECT_TRUE(head.fsdp.is_whole(head.model.second->weight_handle())) << "the loss saved the weight";
      head.fsdp.backward(loss);
      expect_right(head.fsdp);
      head.fsdp.zero_gradients();
      head.accumulate(unshard);
      expect_right(head.fsdp, 2);
    }
    EXPECT_FALSE(saw(head.fsdp, "unit_bypassed"));
  });
}

// Gradients that wait in the reduction's dtype are looked for at the whole parameter, which the first gather makes.
TEST(HeadAsItsOwnUnit, WithoutSyncAndWithAReduceDtypeANeverGatheredHeadFails) {
  on_ranks(2, [](comm::World& world) {
    const MixedPrecision reduce_apart{.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
    {
      HeadUnit head(world, reduce_apart);
      train::HeadFullTensor full(head.fsdp);
      head.fsdp.set_requires_gradient_sync(false);
      const at::Tensor loss = head.loss(full);
      EXPECT_EQ(text_of([&] { head.fsdp.backward(loss); }),
                "'second.weight' has never been gathered: there is no whole parameter whose gradient could wait for a "
                "reduction");
      EXPECT_TRUE(saw(head.fsdp, "unit_bypassed"));
    }
    {
      HeadUnit head(world, {.reduce_dtype = at::kFloat});
      train::HeadFullTensor full(head.fsdp);
      head.fsdp.set_requires_gradient_sync(false);
      EXPECT_THROW(head.fsdp.backward(head.loss(full)), Error) << "set, though it is the gradients' own";
    }
    {
      HeadUnit head(world, {.param_dtype = at::kFloat, .reduce_dtype = at::kFloat});
      train::HeadFullTensor full(head.fsdp);
      head.accumulate(full);
      EXPECT_GT(errors(head.fsdp, 2)[3], 0.1) << "the same dtype twice counts as none: silent";
    }
    {
      HeadUnit head(world, reduce_apart);
      {
        const at::NoGradGuard no_grad;
        head.fsdp.forward([&] { return head.model.forward(rank_input(world.rank()).to(at::kBFloat16)); });
      }
      train::HeadFullTensor full(head.fsdp);
      head.accumulate(full);
      EXPECT_GT(errors(head.fsdp, 2)[3], 0.1) << "it was gathered once: silent";
    }
    {
      HeadUnit head(world, reduce_apart);
      fixes::UnshardHead unshard(head.fsdp);
      head.accumulate(unshard);
      expect_right(head.fsdp, 2, 0.05);
    }
  });
}

// ---- A checkpoint around a module whose child is a unit, run more than once before the backward.

class Wrapped : public Module {
 public:
  Wrapped() { inner = register_module("inner", std::make_shared<SmallModel>()); }
  at::Tensor forward(const at::Tensor& x) override { return (*inner)(x); }
  std::shared_ptr<SmallModel> inner;
};

struct Passes {
  int passes = 2;
  bool unit_first = true;  // `first` is the unit; else `second`, whose output is the block's
  bool input_grad = true;
  bool early_stop = true;
  bool reentrant = false;
};

struct Passed {
  std::string text;
  bool right = false;
  bool unhooked = false;
  std::vector<std::string> broken;
};

// The loss is that of one pass squared, so that the gradients are known. Up to two steps.
Passed run_passes(comm::World& world, const Passes& how, const std::shared_ptr<RecomputePolicy>& policy) {
  Wrapped model;
  SmallModel& inner = *model.inner;
  Fsdp2 fsdp(world, model, {.recompute = policy}, {how.unit_first ? inner.first.get() : inner.second.get()});
  const autograd::Block block = [&](const at::Tensor& x) { return inner(x); };
  Passed passed;
  for (int step = 0; step < 2; ++step) {
    fsdp.zero_gradients();
    const at::Tensor x = rank_input(world.rank()).requires_grad_(how.input_grad);
    const auto pass = [&] {
      return how.reentrant ? autograd::checkpoint_reentrant(block, x)
                           : autograd::checkpoint_nonreentrant(block, x, {.early_stop = how.early_stop});
    };
    const at::Tensor loss = fsdp.forward([&] {
      const at::Tensor y = pass();
      return how.passes == 2 ? (y * pass()).sum() : y.square().sum();
    });
    passed.text = text_of([&] { fsdp.backward(loss); });
    EXPECT_EQ(saw(fsdp, "mixed_dtensor"), passed.text != "no error");
    if (passed.text != "no error") return passed;
    passed.unhooked = saw(fsdp, "recompute_unhooked");
    passed.right = std::ranges::all_of(errors(fsdp), [](double error) { return error < 1e-6; });
    passed.broken = fsdp.broken_invariants();
    if (!passed.right) return passed;
  }
  return passed;
}

void expect_right_passes(comm::World& world, const Passes& how, const std::shared_ptr<RecomputePolicy>& policy) {
  const Passed passed = run_passes(world, how, policy);
  EXPECT_EQ(passed.text, "no error");
  EXPECT_TRUE(passed.right);
  EXPECT_FALSE(passed.unhooked);
  EXPECT_TRUE(passed.broken.empty()) << passed.broken.front();
}

const std::vector<Passes> kEveryPass{{},
                                     {.early_stop = false},
                                     {.unit_first = false},
                                     {.input_grad = false},
                                     {.passes = 1},
                                     {.passes = 1, .early_stop = false},
                                     {.passes = 1, .reentrant = true}};
const std::vector<Passes> kReentrant{{.reentrant = true}, {.unit_first = false, .reentrant = true}};

TEST(PassesUnderOneCheckpoint, BeforeTorch211TheEarlierPassIsRerunOnAFreedUnit) {
  autograd::install_engine();
  on_ranks(2, [](comm::World& world) {
    const auto before = std::make_shared<RecomputeBefore211>();
    for (const Passes& how : {Passes{}, Passes{.early_stop = false}, Passes{.reentrant = true}}) {
      EXPECT_EQ(run_passes(world, how, before).text, "aten.addmm.default" + kMixed);
    }
    for (const Passes& fine : {Passes{.unit_first = false}, Passes{.input_grad = false}, Passes{.passes = 1},
                               Passes{.passes = 1, .early_stop = false}, Passes{.passes = 1, .reentrant = true}}) {
      expect_right_passes(world, fine, before);
    }
  });
}

TEST(PassesUnderOneCheckpoint, GatheredInTheRecomputeNonReentrantOnesAreRight) {
  autograd::install_engine();
  on_ranks(2, [](comm::World& world) {
    const auto fixed = std::make_shared<fixes::RecomputeUnshard>(std::make_shared<RecomputeBefore211>());
    for (const Passes& how : kEveryPass) {
      expect_right_passes(world, how, fixed);
      expect_right_passes(world, how, nullptr);  // torch 2.11
    }
  });
}

// The earlier pass's gradients stay at the whole parameters: half of the sum is missing, and the unit stays gathered.
TEST(PassesUnderOneCheckpoint, GatheredInTheRecomputeAReentrantOneIsSilentlyWrong) {
  autograd::install_engine();
  on_ranks(2, [](comm::World& world) {
    for (const Passes& how : kReentrant) {
      const Passed passed = run_passes(world, how, nullptr);
      EXPECT_EQ(passed.text, "no error");
      EXPECT_FALSE(passed.right);
      EXPECT_TRUE(passed.unhooked);
      const std::string unit = how.unit_first ? "inner.first" : "inner.second";
      ASSERT_FALSE(passed.broken.empty());
      EXPECT_EQ(passed.broken[0], unit + " is still gathered");
      EXPECT_EQ(passed.broken[1], unit + ".weight still has its whole gradient");
    }
  });
}

TEST(PassesUnderOneCheckpoint, WithTheUnitsBackwardOverAtItsPostBackwardAllAreRight) {
  autograd::install_engine();
  on_ranks(2, [](comm::World& world) {
    for (const bool before : {false, true}) {
      const std::shared_ptr<RecomputePolicy> upstream =
          before ? std::make_shared<RecomputeBefore211>() : std::make_shared<RecomputePolicy>();
      const auto fixed = std::make_shared<fixes::RecomputeRearm>(upstream);
      for (const Passes& how : kEveryPass) expect_right_passes(world, how, fixed);
      for (const Passes& how : kReentrant) expect_right_passes(world, how, fixed);
    }
  });
}

// ---- float32 into a unit that computes in bfloat16, under a checkpoint.

enum class Place { around_the_unit, inside_the_unit, reentrant_around };

struct Recast {
  Place place = Place::around_the_unit;
  bool early_stop = true;
  bool norm_first = false;  // a unit of norm and second, which rounds once; else one of first, norm and second
  at::ScalarType input = at::kFloat;
};

std::string text_of_recast(comm::World& world, const Recast& how, const std::shared_ptr<RecomputePolicy>& policy) {
  class Tail : public Module {
   public:
    Tail() {
      norm = register_module("norm", std::make_shared<model::RmsNorm>(3, 1e-6));
      second = register_module("second", std::make_shared<model::Linear>(3, 2, false));
      second->parameters()[0].detach().fill_(0.5);
    }
    at::Tensor forward(const at::Tensor& x) override { return (*second)((*norm)(x)); }
    std::shared_ptr<model::RmsNorm> norm;
    std::shared_ptr<model::Linear> second;
  };
  class Root : public Module {
   public:
    explicit Root(std::shared_ptr<Module> unit) { unit_ = register_module("unit", std::move(unit)); }
    at::Tensor forward(const at::Tensor& x) override { return (*unit_)(x); }
    std::shared_ptr<Module> unit_;
  };
  const std::shared_ptr<Module> unit = how.norm_first ? std::shared_ptr<Module>(std::make_shared<Tail>())
                                                      : std::shared_ptr<Module>(std::make_shared<SmallModel>());
  Root model(unit);
  Fsdp2 fsdp(world, model,
             {.precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}, .recompute = policy},
             {unit.get()});
  const autograd::CheckpointOptions options{.early_stop = how.early_stop};
  std::string text;
  for (int step = 0; step < 2; ++step) {
    fsdp.zero_gradients();
    const at::Tensor x = rank_input(world.rank()).to(how.input).requires_grad_(true);
    const at::Tensor loss = fsdp.forward([&] {
      const autograd::Block call = [&](const at::Tensor& value) { return (*unit)(value); };
      const autograd::Block body = [&](const at::Tensor& value) { return unit->forward(value); };
      at::Tensor y;
      if (how.place == Place::around_the_unit) y = autograd::checkpoint_nonreentrant(call, x, options);
      if (how.place == Place::reentrant_around) y = autograd::checkpoint_reentrant(call, x);
      if (how.place == Place::inside_the_unit) {
        y = unit->call(x, [&](const at::Tensor& value) { return autograd::checkpoint_nonreentrant(body, value); });
      }
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
      return y.to(at::kFloat).square().sum();
    });
    text = text_of([&] { fsdp.backward(loss); });
    EXPECT_EQ(saw(fsdp, "recompute_dtype"), text != "no error");
    if (text != "no error") return text;
    if (!how.norm_first) expect_right(fsdp, 1, 0.05);
    EXPECT_EQ(x.grad().scalar_type(), how.input);
  }
  return text;
}

TEST(RecomputedCast, ARecomputeAroundAUnitComputesInTheInputsDtype) {
  autograd::install_engine();
  on_ranks(2, [](comm::World& world) {
    const std::string two = "mat1 and mat2 must have the same dtype, but got Float and BFloat16";
    EXPECT_EQ(text_of_recast(world, {}, nullptr), two);
    EXPECT_EQ(text_of_recast(world, {.early_stop = false, .norm_first = true}, nullptr),
              "expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16");
    // The last product is not reached: early stop ends the rerun when its operands are saved.
    const std::string metadata = text_of_recast(world, {.norm_first = true}, nullptr);
    EXPECT_TRUE(
        metadata.starts_with("torch.utils.checkpoint: Recomputed values for the following tensors have different "
                             "metadata than during the forward pass.\n"))
        << metadata;
    EXPECT_NE(metadata.find("saved metadata: {'shape': torch.Size([4, 3]), 'dtype': torch.bfloat16, 'device': "
                            "device(type='cpu')}\nrecomputed metadata: {'shape': torch.Size([4, 3]), 'dtype': "
                            "torch.float32, 'device': device(type='cpu')}"),
              std::string::npos)
        << metadata;
  });
}

TEST(RecomputedCast, CastAgainOrPlacedInsideItIsRight) {
  autograd::install_engine();
  on_ranks(2, [](comm::World& world) {
    const auto fixed = std::make_shared<fixes::RecomputeCast>(std::make_shared<RecomputePolicy>());
    for (const bool norm_first : {false, true}) {
      EXPECT_EQ(text_of_recast(world, {.norm_first = norm_first}, fixed), "no error");
      EXPECT_EQ(text_of_recast(world, {.early_stop = false, .norm_first = norm_first}, fixed), "no error");
      EXPECT_EQ(text_of_recast(world, {.place = Place::inside_the_unit, .norm_first = norm_first}, nullptr),
                "no error");
      EXPECT_EQ(text_of_recast(world, {.place = Place::reentrant_around, .norm_first = norm_first}, nullptr),
                "no error");
      EXPECT_EQ(text_of_recast(world, {.norm_first = norm_first, .input = at::kBFloat16}, nullptr), "no error");
    }
  });
}

// A decoder layer takes positions and mask besides its hidden states; a checkpoint around its call holds them uncast.
TEST(RecomputedCast, OfPositionsAndMaskToo) {
  autograd::install_engine();
  on_ranks(2, [](comm::World& world) {
    const auto run = [&](std::shared_ptr<RecomputePolicy> policy, bool around_the_call) {
      model::Config config;
      config.vocab = 16;
      config.hidden = config.intermediate = 8;
      model::CausalLM model(config);
      model::initialise(model, 3);
      // float32 for the layers' context; hidden states are rounded again before the first layer.
      model.backbone().embedding().add_post_forward([](Module&, const at::Tensor& y) { return y.to(at::kFloat); });
      const model::BlockRunner checkpoint = [](const Module::Body& block, const at::Tensor& x) {
        return autograd::checkpoint_nonreentrant(block, x.to(at::kBFloat16));
      };
      model.backbone().run_layer = around_the_call ? checkpoint : model::BlockRunner();
      for (const auto& layer : model.backbone().layers()) {
        layer->run_forward = around_the_call ? model::BlockRunner() : checkpoint;
      }
      Fsdp2 fsdp(world, model, {.precision = {.param_dtype = at::kBFloat16}, .recompute = std::move(policy)});
      const at::Tensor loss = fsdp.forward([&] {
        return model.forward(at::arange(8).view({2, 4})).to(at::kFloat).square().sum();
      });
      const std::string text = text_of([&] { fsdp.backward(loss); });
      EXPECT_EQ(saw(fsdp, "recompute_dtype"), text != "no error");
      return text;
    };
    EXPECT_EQ(run(nullptr, /*around_the_call=*/true), "expected scalar type Float but found BFloat16");
    EXPECT_EQ(run(nullptr, /*around_the_call=*/false), "no error");
    EXPECT_EQ(run(std::make_shared<fixes::RecomputeCast>(std::make_shared<RecomputePolicy>()), true), "no error");
  });
}

// ---- A method that is no forward.

TEST(ForwardMethod, AMethodOfTheRootMeetsShardedParametersUnlessRegistered) {
  on_ranks(2, [](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, {model.first.get()});
    int other_hooks = 0;
    model.add_pre_forward([&](Module&, const at::Tensor& x) {
      ++other_hooks;
      return x;
    });
    const auto method = [&](bool) { return model.forward(rank_input(world.rank())).square().sum(); };
    EntryPolicy as_it_is;
    EXPECT_EQ(text_of([&] { as_it_is.enter(fsdp, method); }), "aten.mul.Tensor" + kMixed);
    fixes::ForwardMethod registered;
    for (int step = 0; step < 2; ++step) {
      fsdp.zero_gradients();
      fsdp.backward(registered.enter(fsdp, method));
      expect_right(fsdp);
    }
    EXPECT_EQ(other_hooks, 0) << "only the unit's own hooks run";
  });
}

TEST(ForwardMethod, AMethodOfAUnitInsideTheRootsForward) {
  on_ranks(2, [](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, {model.first.get()});
    const auto loss = [&](const std::function<at::Tensor(const at::Tensor&)>& first) {
      return fsdp.forward(
          [&] { return (*model.second)((*model.norm)(first(rank_input(world.rank())))).square().sum(); });
    };
    const auto method = [&](const at::Tensor& x) { return model.first->forward(x); };
    EXPECT_EQ(text_of([&] { loss(method); }), "aten.addmm.default" + kMixed);
    fsdp.backward(loss([&](const at::Tensor& x) { return fsdp.run_forward_method(*model.first, x, method); }));
    expect_right(fsdp);
    EXPECT_EQ(text_of([&] {
                fsdp.run_forward_method(*model.norm, rank_input(0), [&](const at::Tensor& x) { return x + 1; });
              }),
              "no error")
        << "a module that is no unit";
  });
}

}  // namespace
}  // namespace regather::shard
