// What a loss asks of the fixes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace regather::loss {

// Surrounds each direct use of the head's parameters by a loss.
class HeadScope {
 public:
  virtual ~HeadScope() = default;
  // `parameters` were read from the head just before; `body` reads them. By default nothing is gathered.
  virtual at::Tensor around(const std::vector<at::Tensor>& parameters, const std::function<at::Tensor()>& body) {
    static_cast<void>(parameters);
    return body();
  }
};

}  // namespace regather::loss
