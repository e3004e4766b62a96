#include "fixes/unshard_head.h"

#include <algorithm>

namespace regather::fixes {

at::Tensor UnshardHead::around(const std::vector<at::Tensor>& parameters, const loss::HeadBody& body) {
  std::vector<at::Tensor> whole = parameters;
  std::ranges::transform(whole, whole.begin(), [&](const at::Tensor& own) { return backend_.unshard(own); });
  return body(whole);
}

}  // namespace regather::fixes
