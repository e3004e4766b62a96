#include "fixes/gather.h"

namespace regather::fixes {

at::Tensor Gather::around(const std::vector<at::Tensor>& parameters, const loss::HeadBody& body) {
  std::vector<at::Tensor> partitioned = parameters;
  std::erase_if(partitioned, [this](const at::Tensor& parameter) { return backend_.is_whole(parameter); });
  return partitioned.empty() ? body(parameters) : backend_.gathered(partitioned, [&] { return body(parameters); });
}

}  // namespace regather::fixes
