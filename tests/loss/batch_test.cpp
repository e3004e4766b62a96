#include "loss/batch.h"

#include <gtest/gtest.h>

namespace regather::loss {
namespace {

TEST(Batch, SameFromSameNumbersAndOtherOnEachRankAndStep) {
  const Batch batch = make_batch({}, 1, 0, 0);
  EXPECT_TRUE(batch.input_ids.equal(make_batch({}, 1, 0, 0).input_ids));
  EXPECT_FALSE(batch.input_ids.equal(make_batch({}, 1, 1, 0).input_ids));
  EXPECT_FALSE(batch.input_ids.equal(make_batch({}, 1, 0, 1).input_ids));
  EXPECT_FALSE(batch.input_ids.equal(make_batch({}, 2, 0, 0).input_ids));
}

TEST(Batch, IsTheCards) {
  for (int rank = 0; rank < 4; ++rank) {
    const Batch batch = make_batch({}, 1, rank, rank % 2);
    EXPECT_EQ(batch.input_ids.sizes(), (std::vector<int64_t>{4, 12}));
    EXPECT_TRUE(batch.labels.narrow(1, 0, 3).eq(kIgnore).all().item<bool>()) << "first positions are masked";
    EXPECT_EQ(batch.labels.ne(kIgnore).sum().item<int64_t>(), 26) << "as many valid tokens on each rank";
    const at::Tensor lengths = batch.labels.ne(kIgnore).sum(1);
    EXPECT_GT(lengths.max().item<int64_t>(), lengths.min().item<int64_t>()) << "lengths are uneven";
    EXPECT_TRUE(batch.labels.masked_select(batch.labels.ne(kIgnore))
                    .equal(batch.input_ids.masked_select(batch.labels.ne(kIgnore))));
  }
}

TEST(Batch, EachLossesOwn) {
  const Batch dpo = make_batch(Loss::dpo, {}, 1, 0, 0);
  EXPECT_TRUE(dpo.input_ids.narrow(0, 0, 2).narrow(1, 0, 3).equal(dpo.input_ids.narrow(0, 2, 2).narrow(1, 0, 3)));
  EXPECT_FALSE(dpo.input_ids.narrow(0, 0, 2).equal(dpo.input_ids.narrow(0, 2, 2)));
  const Batch kto = make_batch(Loss::kto, {}, 1, 0, 0);
  EXPECT_EQ(kto.desirable.sum().item<int64_t>(), 2);
  const Batch grpo = make_batch(Loss::grpo, {}, 1, 0, 0);
  EXPECT_EQ(grpo.advantages.gt(0).sum().item<int64_t>(), 2);
  EXPECT_TRUE(grpo.advantages.abs().gt(0.4).all().item<bool>());
}

TEST(Batch, OneRankHasAnEmptySequenceInTheSecondStep) {
  for (const Loss loss : {Loss::sft, Loss::grpo, Loss::dpo, Loss::kto}) {
    int empty = 0;
    for (int rank = 0; rank < 4; ++rank) {
      for (int step = 0; step < 2; ++step) {
        const Batch batch = make_batch(loss, {}, 1, rank, step);
        empty += static_cast<int>(batch.labels.ne(kIgnore).sum(1).eq(0).sum().item<int64_t>());
      }
    }
    EXPECT_EQ(empty, loss == Loss::sft ? 0 : 1);
  }
}

TEST(Batch, OtherCompletionsKeepPromptsAndLengths) {
  const Batch batch = make_batch(Loss::kto, {}, 1, 0, 0);
  const at::Tensor other = other_completions(batch, {}, 1, 0, 0, 3);
  const at::Tensor completion = batch.labels.ne(kIgnore);
  EXPECT_TRUE(other.masked_select(~completion).equal(batch.input_ids.masked_select(~completion)));
  EXPECT_GT(other.ne(batch.input_ids).sum().item<int64_t>(), 20);
  EXPECT_FALSE(other.equal(other_completions(batch, {}, 1, 0, 0, 4)));
  EXPECT_TRUE(other.equal(other_completions(batch, {}, 1, 0, 0, 3)));
}

}  // namespace
}  // namespace regather::loss
