// What the operators of all losses share: their arguments checked and turned into pointers, their results allocated.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/op/outputs.h"
#include "kernels/problem.h"

namespace regather::kernels::op {

using Optional = std::optional<at::Tensor>;

Dtype dtype_of(const at::Tensor& tensor, const char* name);

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

// What all losses are given.
struct Head {
  const at::Tensor& hidden;
  const at::Tensor& weight;
  const at::Tensor& targets;
  const Optional& bias;
  int64_t ignore_index;

  int64_t tokens() const { return targets.numel(); }
  int64_t length() const { return hidden.size(-2); }
};

struct How {
  int64_t workspace;
  bool float_weight_gradient;
  bool deterministic;
};

Linear linear_of(const Head& head, Given& given);

// What a device does with it.
void run_on_cpu(const Linear& linear, const LossParameters& loss, const Results& results, const How& how);
void run_on_cuda(const at::Tensor& hidden, const Linear& linear, const LossParameters& loss, const Results& results,
                 const How& how);

}  // namespace regather::kernels::op
