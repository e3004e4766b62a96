// Packed weights against bitsandbytes' own (tests/golden/make_packed.py) and against the dense layer.
#include "model/packed_weight.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "golden.h"

namespace regather::model {
namespace {

constexpr int64_t kBytes = 4;  // of a float

at::Tensor some_weight(int64_t rows, int64_t columns) {
  return at::sin(at::arange(rows * columns, at::kDouble) * 12.9898).mul(0.02).to(at::kFloat).view({rows, columns});
}

class PackedGolden : public testing::TestWithParam<std::string> {
 protected:
  at::Tensor golden(const std::string& name) const { return Golden("packed").tensor(GetParam() + "/" + name); }
};
INSTANTIATE_TEST_SUITE_P(Weights, PackedGolden, testing::Values("even", "odd", "zero"));

TEST_P(PackedGolden, BytesScalesAndValuesAreBitsandbytes) {
  const PackedWeight weight = pack(golden("weight"), at::kByte);
  EXPECT_TRUE(at::equal(weight.packed, golden("packed")));
  EXPECT_TRUE(at::equal(weight.quantisation->scales, golden("scales")));
  EXPECT_TRUE(at::equal(dequantise(weight.packed, *weight.quantisation, at::kFloat), golden("dense")));
}

TEST_P(PackedGolden, TheLinearLayerAndItsGradientAreBitsandbytes) {
  const PackedWeight weight = pack(golden("weight"), at::kByte);
  const at::Tensor x = golden("x").requires_grad_(true);
  const at::Tensor y = packed_linear(x, weight.packed, weight.quantisation);
  EXPECT_LT(distance(y, golden("y")), 1e-6);
  y.backward(golden("y/grad"));
  EXPECT_LT(distance(x.grad(), golden("x/grad")), 1e-6);
}

TEST(PackedWeight, TakesHalfAByteAValue) {
  const auto memory = [](const at::Tensor& weight, at::ScalarType storage) {
    return pack(weight, storage).packed.storage().nbytes();
  };
  EXPECT_EQ(memory(some_weight(64, 32), at::kByte), 64U * 32U / 2U);
  EXPECT_EQ(memory(some_weight(64, 32), at::kFloat), 64U * 32U / 2U);
  EXPECT_EQ(memory(some_weight(3, 45), at::kByte), 68U) << "135 values";
  EXPECT_EQ(memory(some_weight(3, 47), at::kFloat), 72U) << "71 bytes, in floats";
  const PackedWeight weight = pack(some_weight(64, 32), at::kByte);
  EXPECT_EQ(weight.packed.sizes(), (std::vector<int64_t>{1024, 1}));
  EXPECT_EQ(weight.quantisation->scales.numel(), 64 * 32 / 64);
}

TEST(PackedWeight, AFloatDtypeHoldsTheSameBytes) {
  const at::Tensor weight = some_weight(3, 47);
  const PackedWeight bytes = pack(weight, at::kByte);
  const PackedWeight floats = pack(weight, at::kFloat);
  EXPECT_EQ(floats.packed.sizes(), (std::vector<int64_t>{72 / kBytes, 1}));
  EXPECT_TRUE(at::equal(floats.packed.view(at::kByte).view({-1, 1}).narrow(0, 0, 71), bytes.packed));
  EXPECT_TRUE(at::equal(dequantise(floats.packed, *floats.quantisation, at::kFloat),
                        dequantise(bytes.packed, *bytes.quantisation, at::kFloat)));
}

TEST(PackedWeight, PackingItsOwnValuesChangesNothing) {
  const PackedWeight once = pack(some_weight(256, 64), at::kByte);
  const at::Tensor dense = dequantise(once.packed, *once.quantisation, at::kFloat);
  EXPECT_GT(distance(dense, some_weight(256, 64)), 1e-3) << "packing rounds";
  EXPECT_LT(distance(dense, some_weight(256, 64)), 0.1);
  const PackedWeight twice = pack(dense, at::kByte);
  EXPECT_TRUE(at::equal(twice.packed, once.packed));
  EXPECT_TRUE(at::equal(dequantise(twice.packed, *twice.quantisation, at::kFloat), dense));
}

TEST(PackedLinear, HasTheDenseLayersGradient) {
  const PackedWeight weight = pack(some_weight(24, 40), at::kByte);
  const at::Tensor dense = dequantise(weight.packed, *weight.quantisation, at::kDouble);
  const at::Tensor x = at::cos(at::arange(3 * 5 * 40, at::kDouble)).view({3, 5, 40});
  const at::Tensor mine = x.clone().requires_grad_(true);
  const at::Tensor theirs = x.clone().requires_grad_(true);
  packed_linear(mine, weight.packed, weight.quantisation).pow(3).sum().backward();
  at::linear(theirs, dense).pow(3).sum().backward();
  EXPECT_LT(distance(mine.grad(), theirs.grad()), 1e-14);
}

TEST(PackedLinear, TheGraphKeepsTheBytesThemselves) {
  const PackedWeight weight = pack(some_weight(24, 40), at::kByte);
  const auto holders = [&] { return weight.packed.storage().use_count(); };
  const auto alone = holders();
  const at::Tensor x = at::ones({2, 40});
  EXPECT_FALSE(packed_linear(x, weight.packed, weight.quantisation).requires_grad());
  EXPECT_EQ(holders(), alone) << "without a gradient to compute nothing is kept";
  at::Tensor y = packed_linear(x.clone().requires_grad_(true), weight.packed, weight.quantisation);
  EXPECT_EQ(holders(), alone + 1);
  y.sum().backward();
  y = at::Tensor();
  EXPECT_EQ(holders(), alone);
}

TEST(PackedLinear, AWeightThatIsNotThereIsAnError) {
  const PackedWeight weight = pack(some_weight(24, 40), at::kByte);
  const at::Tensor empty = at::empty({0}, at::kByte);
  EXPECT_THROW(packed_linear(at::ones({2, 40}), empty, weight.quantisation), Error);
}

}  // namespace
}  // namespace regather::model
