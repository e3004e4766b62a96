// Any bytes, taken as a safetensors file: refused with a UsageError, or ranges that lie inside the data and cover it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "model/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto header = regather::model::parse_header(bytes, size, "input");
    uint64_t covered = 0;
    for (const auto& [name, tensor] : header.tensors) {
      if (tensor.begin > tensor.end || tensor.end > size - header.data_begin) std::abort();
      covered += tensor.end - tensor.begin;
    }
    if (covered != size - header.data_begin) std::abort();
  } catch (const regather::UsageError&) {
  }
  return 0;
}
