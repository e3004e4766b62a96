#include "train/head_full_tensor.h"

#include "shard/fsdp2/sharded_tensor.h"

namespace regather::train {

at::Tensor HeadFullTensor::around(const std::vector<at::Tensor>& parameters, const loss::HeadBody& body) {
  std::vector<at::Tensor> full;
  for (const at::Tensor& own : parameters) {
    const at::ScalarType dtype = backend_.precision().param_dtype.value_or(own.scalar_type());
    full.push_back(shard::is_sharded(own) ? shard::full_tensor(own).to(dtype) : own);
  }
  return body(full);
}

}  // namespace regather::train
