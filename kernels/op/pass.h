// A fused linear loss on tensors, beneath autograd: arguments checked and turned into pointers, results allocated, the
// device's kernels called.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/op/device.h"
#include "kernels/op/outputs.h"
#include "kernels/problem.h"

namespace regather::kernels::op {

using Optional = std::optional<at::Tensor>;

// A tensor that the kernels read, made dense if it is not; it lives until the call is enqueued, and its memory until
// the stream has come past it.
class Given {
 public:
  explicit Given(const at::Tensor& reference) : device_(reference.device()) {}

  template <class T>
  const T* pointer(const Optional& tensor, const char* name, at::ScalarType type, int64_t count) {
    if (!tensor.has_value() || !tensor->defined()) return nullptr;
    TORCH_CHECK(tensor->scalar_type() == type, "regather: ", name, " is ", tensor->scalar_type(), ", not ", type);
    TORCH_CHECK(tensor->numel() == count, "regather: ", name, " has ", tensor->numel(), " values, not ", count);
    return static_cast<const T*>(dense(*tensor, name));
  }
  const void* dense(const at::Tensor& tensor, const char* name) {
    TORCH_CHECK(tensor.device() == device_, "regather: ", name, " is on ", tensor.device(), ", hidden on ", device_);
    kept_.push_back(tensor.contiguous());
    return kept_.back().const_data_ptr();
  }

 private:
  c10::Device device_;
  std::vector<at::Tensor> kept_;
};

// What all losses are given: hidden [..., H], weight [V, H], targets int64 of hidden's shape less H, bias [V].
struct Head {
  const at::Tensor& hidden;
  const at::Tensor& weight;
  const at::Tensor& targets;
  const Optional& bias;
  int64_t ignore_index;

  int64_t tokens() const { return targets.numel(); }
};

// Loss, gradients and log-probabilities. `loss` points into `given`, or to what else lives as long.
Outputs run(const Head& head, const How& how, Given& given, const LossParameters& loss);

// log p(target) of each row in float32, of targets' shape, 0 where masked: what losses are given of a reference model.
at::Tensor log_probabilities(const Head& head);

// stash *= by, in place.
void scale_stash(const at::Tensor& stash, const at::Tensor& by);

}  // namespace regather::kernels::op
