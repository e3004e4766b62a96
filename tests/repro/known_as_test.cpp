#include "repro/known_as.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "repro/register.h"

namespace regather::repro {
namespace {

CaseResult failure(const std::string& which, Outcome outcome, Phase phase, const char* mechanism, const char* text) {
  CaseResult result;
  result.which = parse_id(which);
  result.outcome = outcome;
  result.signature.emplace();
  result.signature->phase = phase;
  result.signature->mechanism = mechanism;
  result.signature->text = text;
  return result;
}

std::vector<std::string> ids(const CaseResult& result) {
  std::vector<std::string> found;
  for (const Entry* entry : known_as(result)) found.push_back(entry->id);
  return found;
}

bool has(const std::vector<std::string>& found, const char* which) {
  return std::ranges::find(found, which) != found.end();
}

TEST(KnownAs, AFailureIsItsIssue) {
  const char* text = "tensor at position 4: saved metadata: {'shape': [32]} recomputed metadata: {'shape': [0]}";
  const auto found = ids(failure("zero3/dpo/checkpoint=nonreentrant/frozen=norms/fix=gather+redirect", Outcome::error,
                                 Phase::backward, "recompute_freed_frozen", text));
  EXPECT_TRUE(has(found, "deepspeed#8130"));
  EXPECT_LE(found.size(), 5U);
}

TEST(KnownAs, WhatTheIssueIsNotAboutIsNotIt) {
  const char* text = "recomputed metadata: {'shape': [0]}";
  const auto with = [&](const char* which, Phase phase, const char* mechanism, const char* said) {
    return has(ids(failure(which, Outcome::error, phase, mechanism, said)), "deepspeed#8130");
  };
  const char* own = "zero3/dpo/checkpoint=nonreentrant/frozen=norms/fix=none";
  EXPECT_TRUE(with(own, Phase::backward, "recompute_freed_frozen", text));
  EXPECT_FALSE(with(own, Phase::backward, "recompute_changed", text)) << "another mechanism";
  EXPECT_FALSE(with(own, Phase::forward, "recompute_freed_frozen", text)) << "another phase";
  EXPECT_FALSE(with(own, Phase::backward, "recompute_freed_frozen", "elsewhere")) << "another text";
  EXPECT_FALSE(
      with("zero3/dpo/checkpoint=reentrant/frozen=norms/fix=none", Phase::backward, "recompute_freed_frozen", text))
      << "outside its axes";
}

TEST(KnownAs, WithoutAFailureOrAMechanismThereIsNone) {
  EXPECT_TRUE(known_as(failure("ddp/dpo/fix=none", Outcome::pass, Phase::forward, "reducer_unarmed", "")).empty());
  EXPECT_TRUE(known_as(failure("ddp/dpo/fix=none", Outcome::error, Phase::forward, "", "anything")).empty());
  EXPECT_TRUE(known_as(failure("ddp/dpo/fix=none", Outcome::error, Phase::forward, "<b>", "anything")).empty());
}

}  // namespace
}  // namespace regather::repro
