// What a loss asks of whoever runs it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace regather::loss {

// Surrounds the direct use of the head's parameters. `parameters` is called to read them, inside whatever scope the
// policy opens before the read; the default opens none.
class HeadScope {
 public:
  virtual ~HeadScope() = default;
  virtual at::Tensor around(const std::vector<at::Tensor>& parameters, const std::function<at::Tensor()>& body) {
    static_cast<void>(parameters);
    return body();
  }
};

}  // namespace regather::loss
