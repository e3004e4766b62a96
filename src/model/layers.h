// Linear, embedding and RMS norm whose parameters are read through Module::read.
#pragma once

#include "model/module.h"
#include "model/packed_weight.h"

namespace regather::model {

// y = x W^T + b. weight [out, in], or packed; bias [out] or undefined.
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, bool bias);
  // Shares another module's weight (tied head).
  Linear(Tensor shared_weight, bool bias);
  Tensor forward(const Tensor& x) override;
  // Read as a backend sees it; the direct read that the fused losses make.
  const Tensor& weight() { return read(weight_handle()); }
  Tensor bias() { return bias_handle().defined() ? read(bias_handle()) : Tensor(); }
  // Not a read: for identity and bookkeeping.
  const Tensor& weight_handle() const { return own_parameter("weight"); }
  const Tensor& bias_handle() const { return own_parameter("bias"); }

  // Puts a packed weight in the place of the present one, under its name and frozen.
  void set_packed(PackedWeight weight);
  // How to read the packed weight; null while it is dense.
  const std::shared_ptr<const Quantisation>& quantisation() const { return quantisation_; }

 private:
  std::shared_ptr<const Quantisation> quantisation_;
};

// y = x W^T + b + (x A^T) B^T * alpha / rank, as peft's LoRA without dropout: A [rank, in], B [out, rank], each a
// Linear of its own named lora_A and lora_B.
class LoraLinear : public Linear {
 public:
  LoraLinear(int64_t in, int64_t out, bool bias, int64_t rank, double alpha);
  Tensor forward(const Tensor& x) override;
  bool adapters_enabled = true;

 private:
  std::shared_ptr<Linear> a_;
  std::shared_ptr<Linear> b_;
  double scale_;
};

// ids [B, T] int64 -> [B, T, width]. The row `padding`, unless negative, gets no gradient from here (config.json's
// pad_token_id).
class Embedding : public Module {
 public:
  Embedding(int64_t count, int64_t width, int64_t padding = -1);
  Tensor forward(const Tensor& ids) override;
  const Tensor& weight_handle() const { return own_parameter("weight"); }

 private:
  int64_t padding_;
};

// weight * (x / sqrt(mean(x^2) + eps)), normalised in float32 or wider, as transformers' Qwen2RMSNorm does.
class RmsNorm : public Module {
 public:
  RmsNorm(int64_t width, double eps);
  Tensor forward(const Tensor& x) override;

 private:
  double eps_;
};

}  // namespace regather::model
