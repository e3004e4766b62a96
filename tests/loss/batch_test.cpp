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

}  // namespace
}  // namespace regather::loss
