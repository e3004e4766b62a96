#include "model/context.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/triu.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <limits>

#include "base/error.h"

namespace regather::model {
namespace {
double lowest(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::lowest();
    case at::kFloat:
      return std::numeric_limits<float>::lowest();
    case at::kHalf:
      return static_cast<float>(std::numeric_limits<at::Half>::lowest());
    case at::kBFloat16:
      return static_cast<float>(std::numeric_limits<at::BFloat16>::lowest());
    default:
      throw Error("model", fmt::format("hidden states of dtype {}: expected float64, float32, float16 or bfloat16",
                                       c10::toString(dtype)));
  }
}
}  // namespace

Tensor rotary_frequencies(int64_t head_dim, double theta) {
  const Tensor exponents = at::arange(0, head_dim, 2, at::kFloat) / static_cast<double>(head_dim);
  return at::reciprocal(at::pow(theta, exponents));
}

ContextPtr make_context(const Tensor& frequencies, int64_t length, const at::TensorOptions& options) {
  auto context = std::make_shared<Context>();
  const auto wide = options.dtype(at::kFloat);
  const Tensor angles = at::arange(length, wide).unsqueeze(-1) * frequencies.to(wide);
  const Tensor both = at::cat({angles, angles}, -1).unsqueeze(0);
  context->cos = both.cos().to(options);
  context->sin = both.sin().to(options);
  const double blocked = lowest(c10::typeMetaToScalarType(options.dtype()));
  context->mask = at::triu(at::full({length, length}, blocked, options), 1).unsqueeze(0).unsqueeze(0);
  return context;
}

void ContextModule::map_other_inputs(const Body& map) {
  if (!context_) return;
  auto mapped = std::make_shared<Context>();
  mapped->cos = map(context_->cos);
  mapped->sin = map(context_->sin);
  mapped->mask = map(context_->mask);
  context_ = std::move(mapped);
}

const ContextPtr& ContextModule::context() const {
  REGATHER_CHECK(context_, "model", "{} ran outside Decoder::forward: it has no positions and no mask", name());
  return context_;
}

}  // namespace regather::model
