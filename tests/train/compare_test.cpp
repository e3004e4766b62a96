#include "train/compare.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace regather::train {
namespace {

TEST(Compare, NamesTheWorstCoordinateWithBothValues) {
  const at::Tensor want = at::ones({3, 4}, at::kDouble);
  at::Tensor got = want.clone();
  got[1][2] = 3;
  const Difference d = compare(got, want);
  EXPECT_NEAR(d.relative_l2, 2 / std::sqrt(12.0), 1e-15);
  EXPECT_EQ(d.max_abs, 2);
  EXPECT_EQ(d.at, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(d.got, 3);
  EXPECT_EQ(d.want, 1);
  EXPECT_NEAR(d.cosine, 14 / std::sqrt(20.0 * 12.0), 1e-12);
}

TEST(Compare, EqualIsZeroAndOppositeIsTwo) {
  const at::Tensor x = at::randn({5});
  EXPECT_EQ(compare(x, x).relative_l2, 0);
  EXPECT_NEAR(compare(-x, x).relative_l2, 2, 1e-12);
  EXPECT_NEAR(compare(-x, x).cosine, -1, 1e-12);
}

TEST(Compare, AnUnwantedGradientIsNotHiddenByAZeroReference) {
  EXPECT_EQ(compare(at::ones({4}), at::zeros({4})).relative_l2, 2);
  EXPECT_EQ(compare(at::zeros({4}), at::zeros({4})).relative_l2, 0);
}

TEST(Compare, CountsNonFiniteEntries) {
  at::Tensor got = at::ones({4});
  got[0] = std::numeric_limits<float>::infinity();
  got[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(compare(got, at::ones({4})).nonfinite, 2);
}

TEST(Compare, OtherShapesAreAnError) { EXPECT_THROW(compare(at::ones({4}), at::ones({2, 2})), Error); }

double float_share(const at::Tensor& before, const at::Tensor& after, const at::Tensor& want) {
  return update_share(before, after, want, 1e-5, 0x1.0p-24);
}

TEST(UpdateShare, SeesAWrongUpdateUnderALargeParameter) {
  const at::Tensor before = at::ones({100});
  const at::Tensor want = at::ones({100}, at::kDouble) * 1e-3;
  EXPECT_LT(float_share(before, before + want.to(at::kFloat), want), 1) << "rounding alone is allowed";
  EXPECT_GT(float_share(before, before + want.to(at::kFloat) * 1.001, want), 1) << "a tenth of a percent is not";
  EXPECT_GT(float_share(before, before, want), 100) << "no update at all is not";
}

TEST(UpdateShare, AFrozenParameterMustNotMove) {
  const at::Tensor zero = at::zeros({4});
  EXPECT_EQ(float_share(zero, zero, at::zeros({4}, at::kDouble)), 0);
  EXPECT_TRUE(std::isinf(float_share(zero, zero + 1e-30, at::zeros({4}, at::kDouble))));
}

TEST(Digest, ChangesWithAnyBitAndWithWhatCameBefore) {
  const at::Tensor x = at::randn({33});
  at::Tensor y = x.clone();
  EXPECT_EQ(digest(x, 1), digest(y, 1));
  EXPECT_NE(digest(x, 1), digest(x, 2));
  y[32] = std::nextafter(y[32].item<float>(), 10.0F);
  EXPECT_NE(digest(x, 1), digest(y, 1));
  EXPECT_NE(digest(at::Tensor(), 1), digest(x, 1));
}

}  // namespace
}  // namespace regather::train
