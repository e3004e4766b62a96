// Cases with a packed base: they pass where adapters on a dense base pass, fail where those fail, and for the same
// reason. bitsandbytes' layers on the real DDP, DeepSpeed and FSDP2 gave the same for sft through the wrapper.
#include <gtest/gtest.h>

#include "case/fixes.h"
#include "case/support.h"
#include "model/quantise.h"
#include "tests/train/card.h"
#include "train/prepare.h"
#include "train/reference.h"
#include "train/run_case.h"

namespace regather::train {
namespace {

CaseResult run(const Case& c, Launcher launcher = Launcher::threads) {
  static Runner runner;
  RunOptions options;
  options.launcher = launcher;
  return runner.run(c, options);
}
CaseResult run(const std::string& id) { return run(parse_id(id)); }

std::string text_of(const CaseResult& result) {
  return result.signature ? result.signature->type + ": " + result.signature->text : result.reason;
}

void expect_pass(const Case& c) {
  const CaseResult result = run(c);
  EXPECT_EQ(result.outcome, Outcome::pass) << id(c) << ": " << text_of(result);
  EXPECT_GT(result.gradients->compared, 0) << id(c);
  EXPECT_LT(result.gradients->relative_l2, 2e-6) << id(c);
}

constexpr Backend kBackends[] = {Backend::ddp, Backend::zero3, Backend::fsdp2};
constexpr Loss kLosses[] = {Loss::sft, Loss::grpo, Loss::dpo, Loss::kto};
constexpr Checkpoint kCheckpoints[] = {Checkpoint::none, Checkpoint::reentrant, Checkpoint::nonreentrant};

// The supported cases with a packed base that `change` makes of each backend, loss and checkpoint.
std::vector<Case> cases(const std::function<void(Case&)>& change = [](Case&) {}) {
  std::vector<Case> all;
  for (const Backend backend : kBackends) {
    for (const Loss loss : kLosses) {
      for (const Checkpoint checkpoint : kCheckpoints) {
        Case c{.backend = backend, .loss = loss, .checkpoint = checkpoint, .frozen = Frozen::quantised};
        c.fixes = recommended_fixes(backend, loss);
        change(c);
        if (!illegal(c) && !unsupported(c)) all.push_back(c);
      }
    }
  }
  return all;
}

TEST(Quantised, PassesWithTheRecommendedFixes) {
  EXPECT_GE(cases().size(), 33U);
  for (const Case& c : cases()) expect_pass(c);
}

TEST(Quantised, PassesWithATiedHead) {
  for (const Case& c : cases([](Case& each) { each.head = Head::tied; })) expect_pass(c);
}

TEST(Quantised, PassesWithThePackedBaseItselfAsReference) {
  const auto shared = cases([](Case& each) { each.reference = regather::Reference::shared; });
  EXPECT_GE(shared.size(), 15U);
  for (const Case& c : shared) expect_pass(c);
}

TEST(Quantised, PassesInOtherWorldsAndThroughOtherKernels) {
  for (const char* id :
       {"ddp/sft/frozen=quantised/world=1/fix=redirect", "ddp/sft/frozen=quantised/world=4/fix=redirect",
        "zero3/sft/frozen=quantised/world=1/fix=gather+redirect",
        "zero3/sft/checkpoint=nonreentrant/frozen=quantised/world=4/fix=gather+recompute_hold+redirect",
        "zero3/sft/frozen=quantised/world=4/persistence=upstream/fix=gather+redirect",
        "zero3/sft/frozen=quantised/persistence=huge/fix=gather+redirect", "zero3/sft/frozen=quantised/fix=gather",
        "zero3/sft/kernel=eager/frozen=quantised/call=engine/fix=none",
        "zero3/sft/kernel=chunked/frozen=quantised/fix=gather+redirect",
        "zero3/dpo/frozen=quantised/head_bias=yes/fix=gather+redirect",
        "fsdp2/sft/frozen=quantised/world=1/fix=redirect", "fsdp2/sft/frozen=quantised/world=4/fix=redirect",
        "fsdp2/sft/kernel=eager/checkpoint=nonreentrant/frozen=quantised/call=engine/fix=none",
        "fsdp2/sft/checkpoint=nonreentrant/frozen=quantised/checkpoint_at=call/fix=redirect"}) {
    expect_pass(parse_id(id));
  }
}

// With and without fixes, outcome, mechanism and place are those of adapters on a dense base.
TEST(Quantised, FailsAsAdaptersOnADenseBaseDo) {
  const std::vector<Fixes> sets{{}, {"gather"}, {"gather", "redirect"}};
  int failed = 0;
  for (const Fixes& fixes : sets) {
    for (const Case& packed : cases([&](Case& each) { each.fixes = fixes; })) {
      Case dense = packed;
      dense.frozen = Frozen::lora;
      const CaseResult got = run(packed);
      const CaseResult want = run(dense);
      EXPECT_EQ(got.outcome, want.outcome) << id(packed) << ": " << text_of(got);
      ASSERT_EQ(got.signature.has_value(), want.signature.has_value()) << id(packed);
      if (!got.signature) continue;
      ++failed;
      EXPECT_EQ(got.signature->mechanism, want.signature->mechanism) << id(packed);
      EXPECT_NE(got.signature->mechanism, "") << id(packed);
      EXPECT_EQ(got.signature->phase, want.signature->phase) << id(packed);
      EXPECT_EQ(got.signature->step, want.signature->step) << id(packed);
    }
  }
  EXPECT_GT(failed, 50);
}

TEST(Quantised, AReentrantCheckpointWithoutAnInputThatRequiresGradFails) {
  for (const char* id : {"ddp/sft/checkpoint=reentrant/frozen=quantised/input_grad=no/fix=redirect",
                         "zero3/sft/checkpoint=reentrant/frozen=quantised/input_grad=no/fix=gather+redirect",
                         "fsdp2/sft/checkpoint=reentrant/frozen=quantised/input_grad=no/fix=redirect"}) {
    const CaseResult result = run(id);
    ASSERT_TRUE(result.signature) << id;
    EXPECT_EQ(result.signature->mechanism, "no_grad_input") << id << ": " << text_of(result);
    EXPECT_EQ(result.signature->phase, Phase::backward) << id;
  }
}

// The norms alone: no checkpoint sees a packed weight. DeepSpeed names the same positions.
TEST(Quantised, TheRecomputeFreesTheFrozenNormsNotThePackedWeights) {
  const CaseResult result = run("zero3/sft/checkpoint=nonreentrant/frozen=quantised/fix=gather+redirect");
  ASSERT_TRUE(result.signature);
  EXPECT_EQ(result.outcome, Outcome::error);
  EXPECT_EQ(result.signature->mechanism, "recompute_freed_frozen");
  EXPECT_EQ(result.signature->phase, Phase::backward);
  const std::string& text = result.signature->text;
  std::vector<std::string> positions;
  for (size_t at = text.find("position "); at != std::string::npos; at = text.find("position ", at + 1)) {
    positions.push_back(text.substr(at + 9, text.find(':', at) - at - 9));
  }
  EXPECT_EQ(positions, (std::vector<std::string>{"4", "34"})) << text;
  EXPECT_EQ(text.find("uint8"), std::string::npos) << text;
  EXPECT_EQ(run("zero3/sft/checkpoint=nonreentrant/frozen=quantised/fix=gather+recompute_hold+redirect").outcome,
            Outcome::pass);
}

TEST(Quantised, RanksAsProcessesGiveTheSameBits) {
  for (const char* text :
       {"ddp/sft/frozen=quantised/fix=redirect", "ddp/kto/frozen=quantised/reference=shared/fix=redirect",
        "zero3/sft/checkpoint=nonreentrant/frozen=quantised/fix=gather+recompute_hold+redirect",
        "zero3/sft/checkpoint=nonreentrant/frozen=quantised/fix=gather+redirect",
        "zero3/dpo/frozen=quantised/fix=gather+redirect",
        "fsdp2/sft/checkpoint=reentrant/frozen=quantised/fix=redirect",
        "fsdp2/dpo/frozen=quantised/reference=shared/fix=redirect"}) {
    const CaseResult threads = run(parse_id(text));
    const CaseResult processes = run(parse_id(text), Launcher::processes);
    EXPECT_EQ(name(threads.outcome), name(processes.outcome)) << text;
    EXPECT_EQ(threads.signature, processes.signature) << text;
    EXPECT_EQ(threads.gradients, processes.gradients) << text;
    EXPECT_EQ(threads.loss, processes.loss) << text;
  }
}

Setting quantised_card() {
  model::Config config;
  config.lora_rank = 4;
  auto initial = std::make_shared<model::CausalLM>(config);
  model::initialise(*initial, 1);
  model::round_to_quantised(*initial);
  Setting setting;
  setting.initial = initial;
  setting.reference = make_reference_model(*initial, 1);
  return setting;
}

TEST(Quantised, ThePreparedModelHasThePackedSizeInMemory) {
  const Setting setting = quantised_card();
  for (const Backend backend : kBackends) {
    const auto model = prepare_model(setting, {.backend = backend, .frozen = Frozen::quantised});
    const auto dense = model::distinct_parameters(*setting.initial);
    const auto parameters = model::distinct_parameters(*model);
    size_t packed = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& [name, parameter] = parameters[i];
      EXPECT_EQ(parameter.requires_grad(), name.find("lora_") != std::string::npos) << name;
      if (!name.ends_with("_proj.weight")) continue;
      EXPECT_EQ(parameter.storage().nbytes() * 8, dense[i].second.nbytes()) << name << ": 4 bits for 32";
      EXPECT_TRUE(parameter.storage().unique()) << name;
      packed += parameter.storage().nbytes();
    }
    EXPECT_EQ(packed, 2U * (4U * 32U * 32U + 3U * 32U * 64U) / 2U);
  }
}

TEST(Quantised, AFoldersWeightsArePackedOnceLoaded) {
  Runner runner;
  RunOptions options;
  options.model = REGATHER_SOURCE_DIR "/tests/data/qwen2-tiny";
  for (const char* id : {"zero3/sft/frozen=quantised/fix=gather+redirect", "fsdp2/dpo/frozen=quantised/fix=redirect"}) {
    const CaseResult result = runner.run(parse_id(id), options);
    EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << text_of(result);
  }
}

TEST(Quantised, FewerBytesAreGathered) {
  for (const char* backend : {"zero3/sft/", "fsdp2/sft/"}) {
    const std::string fixes = std::string(backend).starts_with("zero3") ? "fix=gather+redirect" : "fix=redirect";
    const CaseResult dense = run(std::string(backend) + "frozen=lora/" + fixes);
    const CaseResult packed = run(std::string(backend) + "frozen=quantised/" + fixes);
    EXPECT_LT(packed.counters.at("all_gather_bytes"), 0.7 * dense.counters.at("all_gather_bytes")) << backend;
    EXPECT_LT(*packed.peak_bytes, *dense.peak_bytes) << backend;
  }
}

TEST(Quantised, TheReferenceTrainsTheAdaptersOnTheRoundedBase) {
  const Setting setting = quantised_card();
  const auto reference = compute_reference(setting, {.frozen = Frozen::quantised});
  for (const auto& [name, gradient] : reference->steps[0].gradients) {
    EXPECT_NE(name.find("lora_"), std::string::npos) << name;
    EXPECT_GT(gradient.norm().item<double>(), 0) << name;
  }
  EXPECT_EQ(reference->steps[0].gradients.size(), 2U * 4U * 2U);
}

}  // namespace
}  // namespace regather::train
