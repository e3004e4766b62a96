// What the releases of the packages decide.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "repro/check/call_path.h"
#include "repro/check/check.h"
#include "repro/check/guards.h"

namespace regather::check {
namespace {

Checked checked(const std::vector<std::string>& texts) {
  std::vector<File> files;
  for (const std::string& text : texts) files.push_back(parse_file(fmt::format("f{}", files.size()), text));
  static const std::vector<Measured> recordings = measured_by_recordings();
  return check(std::move(files), recordings);
}

const std::string kZero3 = R"({"zero_optimization":{"stage":3}})";
const std::string kSftLora = "packing: true\nuse_peft: true\nlora_target_modules: [q_proj, k_proj, v_proj, o_proj]\n";
const std::string kDpoLiger = "loss_type: sigmoid\nuse_liger_kernel: true\n";

TEST(Release, ReentrantIsForcedWhereItReachesTheModel) {
  const auto verdict = [](const std::string& transformers, const std::string& more = {}) {
    return checked({kZero3, kSftLora + more, "trl==1.6.0\ndeepspeed==0.19.2\ntransformers==" + transformers + "\n"});
  };
  const std::string said = "gradient_checkpointing_kwargs: {use_reentrant: false}\n";
  EXPECT_EQ(verdict("5.24.0").answers.front().mechanism, "recompute_freed_frozen");
  EXPECT_EQ(verdict("5.24.0", said).verdict, Verdict::works);
  EXPECT_EQ(verdict("5.22.0").answers.front().which->checkpoint, Checkpoint::reentrant);
}

TEST(Release, NotEveryTrainerForcesIt) {
  const std::string dpo = "loss_type: sigmoid\nuse_peft: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n";
  const auto kind = [&](const std::string& trl) {
    const Checked c = checked({kZero3, dpo, "trl==" + trl + "\ndeepspeed==0.19.2\n"});
    return c.answers.front().which ? c.answers.front().which->checkpoint : Checkpoint::none;
  };
  EXPECT_EQ(kind("1.6.0"), Checkpoint::nonreentrant);
  EXPECT_EQ(kind("1.16.0"), Checkpoint::reentrant);
}

TEST(Release, OfDeepSpeedStandsOnItsSideOfTheFix) {
  const auto with = [](const std::string& deepspeed) {
    return checked({kZero3, kSftLora, "trl==1.6.0\ndeepspeed==" + deepspeed + "\ntransformers==5.24.0\n"});
  };
  EXPECT_EQ(with("0.19.2").verdict, Verdict::crashes);
  EXPECT_EQ(with("0.18.0").verdict, Verdict::crashes);
  const auto cited = [](const Answer& a) {
    return std::ranges::any_of(a.assumed, [](const Assumption& x) { return x.why.find("cited") != std::string::npos; });
  };
  EXPECT_FALSE(cited(with("0.19.2").answers.front())) << "measured";
  EXPECT_TRUE(cited(with("0.18.0").answers.front())) << "not measured";
  EXPECT_NE(with("0.19.5").verdict, Verdict::crashes);
}

TEST(Release, OneThatRefusesIsToldApart) {
  const std::string acc = "distributed_type: MULTI_GPU\nnum_processes: 2\n";
  const Checked all = checked({acc, kDpoLiger + "use_peft: true\n"});
  ASSERT_GE(all.answers.size(), 2U);
  EXPECT_EQ(all.answers.front().versions, ">=1.6.0,<1.8.0");
  EXPECT_EQ(all.answers.front().proofs.front().basis, Basis::read);
  EXPECT_EQ(all.answers.front().type, "NotImplementedError");
  EXPECT_EQ(all.answers[1].versions, ">=1.8.0,<1.9.0");
}

TEST(Release, NoneNamedMeansEveryOne) {
  const Checked c = checked({kDpoLiger});
  EXPECT_EQ(c.verdict, Verdict::silently_wrong);
  std::vector<std::string> versions;
  for (const Answer& a : c.answers) versions.push_back(a.versions);
  EXPECT_EQ(versions, (std::vector<std::string>{">=1.6.0,<1.9.0", ">=1.9.0,<1.14.0", ">=1.14.0,<1.15.0",
                                                ">=1.15.0,<1.16.0", ">=1.16.0,<=1.16.0"}));
}

TEST(Release, ThatWasNeverRunIsUnknown) {
  EXPECT_EQ(checked({kDpoLiger, "trl==0.20.0\n"}).verdict, Verdict::unknown);
  EXPECT_EQ(checked({kDpoLiger, "trl==2.0.0\n"}).verdict, Verdict::unknown);
}

TEST(Release, FailuresComeWithWhatRepairsThem) {
  const Checked c = checked({kZero3, kSftLora, "trl==1.6.0\ndeepspeed==0.19.2\n"});
  const Answer& answer = c.answers.front();
  EXPECT_NE(std::ranges::find(answer.issues, "deepspeed#8130"), answer.issues.end());
  const auto has = [&](const std::string& part) {
    return std::ranges::any_of(
        answer.remedies, [&](const Remedy& r) { return r.what.find(part) != std::string::npos && !r.by.empty(); });
  };
  EXPECT_TRUE(has("use_reentrant: true"));
  EXPECT_TRUE(has("ZeRO stage 2"));
  EXPECT_TRUE(has("deepspeed 0.19.8"));
  EXPECT_FALSE(has("no fused loss")) << "there is none";
}

TEST(CallPaths, AreReadWithTheirRows) {
  EXPECT_GE(known_call_paths().size(), 100U);
  const auto rows = call_paths_of("dpo", "liger", Backend::ddp, "1.13.0");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].outcome, Outcome::wrong_gradient);
  EXPECT_EQ(id(*rows[0].which), "ddp/dpo/fix=none");
  EXPECT_TRUE(call_paths_of("kto", "liger", Backend::ddp, "1.15.0").empty());
  EXPECT_FALSE(call_paths_of("dpo", "none", Backend::zero2, "1.6.0").empty()) << "between DDP and ZeRO-3, which agree";
  EXPECT_FALSE(call_paths_of("dpo", "none", Backend::zero2, "1.6.0").front().ran);
  EXPECT_THROW(parse_call_paths("x", "{"), UsageError);
  EXPECT_THROW(parse_call_paths("x", R"({"schema":1,"rows":[{"package":"trl"}]})"), UsageError);
}

}  // namespace
}  // namespace regather::check
