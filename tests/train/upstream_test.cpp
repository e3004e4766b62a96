// Our own words for a failure lead to upstream's; libtorch's words are left alone.
#include "train/upstream.h"

#include <gtest/gtest.h>

#include "cases.h"

namespace regather::train {
namespace {

std::string upstream_of(const std::string& id) {
  const CaseResult result = run(id);
  EXPECT_EQ(result.outcome, Outcome::error) << id;
  return result.signature ? result.signature->upstream : "no signature";
}

TEST(Upstream, PythonsTextsStandBesideOurs) {
  EXPECT_EQ(upstream_of("zero3/grpo/fix=none"), "not enough values to unpack (expected 2, got 1)");
  EXPECT_EQ(upstream_of("zero2/sft/checkpoint=reentrant/frozen=lora/input_grad=no/fix=redirect"),
            "loss must be a scalar tensor. If you need to pass output gradients, backward() of output tensors");
  EXPECT_EQ(upstream_of("zero1/kto/checkpoint=reentrant/frozen=lora/input_grad=no/fix=redirect"),
            "list index out of range");
}

TEST(Upstream, LibtorchsOwnTextsAreLeftAlone) {
  EXPECT_EQ(upstream_of("zero3/sft/fix=none"), "");
  EXPECT_EQ(upstream_of("zero3/dpo/fix=gather"), "");
  EXPECT_EQ(upstream_of("fsdp2/grpo/fix=none"), "");
}

}  // namespace
}  // namespace regather::train
