// Writes a safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace regather::model {

// A tensor as it goes into a file: dtype as the format names it, bytes little-endian and row by row.
struct TensorBytes {
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t width = 0;  // bytes an element
  std::string_view bytes;
};

// Elements stand aligned in the file, so that a reader may map it and view them in place. A file of that name is
// replaced once the new one is whole. Throws Error("file") when it cannot be written, UsageError that names a tensor
// whose dtype and shape do not ask for its number of bytes.
void write_safetensors(const std::filesystem::path& file, const std::map<std::string, TensorBytes>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace regather::model
