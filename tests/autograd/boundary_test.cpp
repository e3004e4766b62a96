#include "autograd/boundary.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace regather::autograd {
namespace {

TEST(Boundary, RunsBeforeTheGradientGoesOn) {
  at::Tensor x = at::ones({3}).requires_grad_(true);
  int order = 0;
  int at_boundary = 0;
  int at_leaf = 0;
  x.register_hook([&](const at::Tensor&) { at_leaf = ++order; });
  at::Tensor y = boundary(x, [&] { at_boundary = ++order; });
  (y * 2).sum().backward();
  EXPECT_EQ(at_boundary, 1);
  EXPECT_EQ(at_leaf, 2);
  EXPECT_TRUE(x.grad().equal(at::ones({3}) * 2));
}

TEST(Boundary, LeavesAloneWhatNeedsNoGradient) {
  bool ran = false;
  const at::Tensor plain = at::ones({3});
  EXPECT_TRUE(boundary(plain, [&] { ran = true; }).is_same(plain));
  at::Tensor x = at::ones({3}).requires_grad_(true);
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(boundary(x, [&] { ran = true; }).is_same(x));
  }
  EXPECT_FALSE(ran);
}

TEST(Boundary, AnErrorInItEndsTheBackward) {
  at::Tensor x = at::ones({3}).requires_grad_(true);
  at::Tensor y = boundary(x, [] { throw std::runtime_error("stop here"); });
  EXPECT_THROW(y.sum().backward(), std::runtime_error);
  EXPECT_FALSE(x.grad().defined());
}

}  // namespace
}  // namespace regather::autograd
