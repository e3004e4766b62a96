// What the kernels throw: wrong arguments, and errors of CUDA and cuBLAS with the call's name.
#pragma once

#include <stdexcept>
#include <string>

namespace regather::kernels {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(bool condition, const std::string& otherwise) {
  if (!condition) throw Error(otherwise);
}

}  // namespace regather::kernels
