#include "model/attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>

namespace regather::model {
namespace {
std::shared_ptr<Linear> projection(const Config& config, int64_t in, int64_t out, bool bias) {
  if (config.lora_rank > 0) {
    return std::make_shared<LoraLinear>(in, out, bias, config.lora_rank, config.lora_alpha);
  }
  return std::make_shared<Linear>(in, out, bias);
}

// Element i is paired with i + head_dim / 2 and the pair turned by its angle.
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const Tensor kept = x * cos;
  const Tensor turned = at::cat({-x.slice(-1, half), x.slice(-1, 0, half)}, -1) * sin;
  return kept + turned;
}

// [B, kv_heads, T, D] -> [B, kv_heads * groups, T, D], each head `groups` times in a row.
Tensor repeat_heads(const Tensor& x, int64_t groups) {
  if (groups == 1) return x;
  const auto b = x.size(0), heads = x.size(1), length = x.size(2), width = x.size(3);
  return x.unsqueeze(2).expand({b, heads, groups, length, width}).reshape({b, heads * groups, length, width});
}
}  // namespace

Attention::Attention(const Config& config) : head_dim_(config.head_dim()), groups_(config.heads / config.kv_heads) {
  const int64_t queries = config.heads * head_dim_;
  const int64_t keys = config.kv_heads * head_dim_;
  q_proj_ = register_module("q_proj", projection(config, config.hidden, queries, true));
  k_proj_ = register_module("k_proj", projection(config, config.hidden, keys, true));
  v_proj_ = register_module("v_proj", projection(config, config.hidden, keys, true));
  o_proj_ = register_module("o_proj", projection(config, queries, config.hidden, false));
}

Tensor Attention::split_heads(const Tensor& x) const {
  return x.view({x.size(0), x.size(1), -1, head_dim_}).transpose(1, 2);
}

Tensor Attention::forward(const Tensor& hidden) {
  Tensor q = split_heads((*q_proj_)(hidden));
  Tensor k = split_heads((*k_proj_)(hidden));
  Tensor v = split_heads((*v_proj_)(hidden));
  const Tensor cos = context()->cos.unsqueeze(1);
  const Tensor sin = context()->sin.unsqueeze(1);
  q = rotate(q, cos, sin);
  k = repeat_heads(rotate(k, cos, sin), groups_);
  v = repeat_heads(v, groups_);

  const Tensor scores =
      at::matmul(q, k.transpose(2, 3)) * std::pow(static_cast<double>(head_dim_), -0.5) + context()->mask;
  const auto wide = at::promote_types(scores.scalar_type(), at::kFloat);
  const Tensor weights = at::softmax(scores, -1, wide).to(q.scalar_type());
  const Tensor mixed = at::matmul(weights, v).transpose(1, 2).contiguous();
  return (*o_proj_)(mixed.reshape({hidden.size(0), hidden.size(1), -1}).contiguous());
}

}  // namespace regather::model
