#include "case/result.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/golden.h"

namespace regather {
namespace {

CaseResult full_result() {
  CaseResult r;
  r.which = parse_id("zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=gather+redirect");
  r.attempt = 2;
  r.outcome = Outcome::error;
  r.signature = Signature{"recompute_freed_frozen",
                          Phase::backward,
                          0,
                          1,
                          "CheckpointError",
                          "saved [32], recomputed [0]\nat position 3",
                          "torch.utils.checkpoint",
                          {"model.layers.0.mlp", "", "all_gather #12"}};
  r.also = {{Outcome::wrong_gradient, {"", Phase::gradients, 1, 0, "", "model.norm.weight", ""}}};
  r.gradients = GradientSummary{
      27, "model.layers.0.mlp.up_proj.weight", 2.5e-7, 1.0, 1e-5, 0.025, 1e-6, {3, 4}, 0.5, 0.25, 1, 2, 3};
  r.loss = LossPair{5.5, 5.25};
  r.counters = {{"gathers", 12}, {"releases", 12}};
  r.milliseconds = 12.5;
  r.peak_bytes = 1 << 20;
  return r;
}

TEST(ResultLine, IsAsTheGoldenFileSays) {
  CaseResult empty;
  empty.which = parse_id("fsdp2/kto/fix=none");
  empty.outcome = Outcome::unsupported;
  empty.reason = "backend fsdp2 is not in the reference runtime yet";
  expect_golden("case/golden/lines.jsonl", to_line(full_result()) + "\n" + to_line(empty) + "\n");
}

TEST(ResultLine, ReadsBackWhatItWrites) {
  const CaseResult r = full_result();
  const CaseResult read = result_from_line(to_line(r));
  EXPECT_EQ(read.which, r.which);
  EXPECT_EQ(read.signature, r.signature);
  EXPECT_EQ(read.also, r.also);
  EXPECT_EQ(read.gradients, r.gradients);
  EXPECT_EQ(read.loss, r.loss);
  EXPECT_EQ(read.counters, r.counters);
  EXPECT_EQ(read.peak_bytes, r.peak_bytes);
  EXPECT_EQ(to_line(read), to_line(r));
}

TEST(ResultLine, WhereMayBeLeftOut) {
  nlohmann::json line = nlohmann::json::parse(to_line(full_result()));
  line["signature"].erase("where");
  line["also"][0]["signature"].erase("where");
  const CaseResult read = result_from_json(line);
  EXPECT_EQ(read.signature->where, Where{});
  EXPECT_EQ(read.also, full_result().also);
  line["signature"]["where"] = {{"module", 3}, {"parameter", nullptr}, {"collective", nullptr}};
  EXPECT_THROW(result_from_json(line), UsageError);
}

TEST(ResultLine, NumbersThatAreNotFiniteAreNull) {
  CaseResult r = full_result();
  r.gradients->relative_l2 = std::numeric_limits<double>::infinity();
  r.loss->got = std::nan("");
  const std::string line = to_line(r);
  EXPECT_NE(line.find("\"relative_l2\":null"), std::string::npos);
  EXPECT_EQ(line.find("nan"), std::string::npos);
  EXPECT_TRUE(std::isnan(result_from_line(line).loss->got));
}

TEST(ResultLine, TextsOfAnyBytesMakeOneLineOfJson) {
  CaseResult r = full_result();
  r.signature->text = std::string("line\nbreak \xff\xfe \0 byte", 20);
  const std::string line = to_line(r);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_NO_THROW(result_from_line(line));
}

TEST(ResultLine, EveryNameParsesBack) {
  for (int i = 0; i <= static_cast<int>(Outcome::notrun); ++i) {
    EXPECT_EQ(parse_outcome(name(static_cast<Outcome>(i))), static_cast<Outcome>(i));
  }
  for (int i = 0; i <= static_cast<int>(Phase::invariant); ++i) {
    EXPECT_EQ(parse_phase(name(static_cast<Phase>(i))), static_cast<Phase>(i));
  }
  EXPECT_THROW(parse_outcome("fine"), UsageError);
  EXPECT_THROW(parse_phase("sideways"), UsageError);
}

TEST(ResultLine, NamesTheMemberAtFault) {
  const nlohmann::json good = nlohmann::json::parse(to_line(full_result()));
  const auto error_with = [&](const char* pointer, const nlohmann::json& value) -> std::string {
    nlohmann::json line = good;
    line[nlohmann::json::json_pointer(pointer)] = value;
    try {
      result_from_json(line);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_with("/attempt", "one"), "result line: 'attempt' is \"one\": expected an integer in range");
  EXPECT_EQ(error_with("/attempt", 1e300), "result line: 'attempt' is 1e+300: expected an integer in range");
  EXPECT_EQ(error_with("/attempt", 4294967296), "result line: 'attempt' is 4294967296: expected an integer in range");
  EXPECT_EQ(error_with("/schema", 2), "result line: schema 2: this version reads schema 1");
  EXPECT_EQ(error_with("/signature/rank", nullptr),
            "result line: 'signature.rank' is null: expected an integer in range");
  EXPECT_EQ(error_with("/gradients/at", "here"), "result line: 'gradients.at' is \"here\": expected an array");
  EXPECT_EQ(error_with("/counters", 3), "result line: 'counters' is 3: expected an object");
  EXPECT_EQ(error_with("/also/0/signature", 3), "result line: 'also.signature.' is 3: expected an object");
  for (const auto& [key, value] : good.items()) {
    nlohmann::json line = good;
    line.erase(key);
    if (key == "axes" || key == "fixes") {
      EXPECT_NO_THROW(result_from_json(line)) << "the id tells them";
    } else {
      EXPECT_THROW(result_from_json(line), UsageError) << key;
    }
  }
  EXPECT_THROW(result_from_line("{\"schema\":1,"), UsageError);
  EXPECT_THROW(result_from_line("[]"), UsageError);
}

}  // namespace
}  // namespace regather
