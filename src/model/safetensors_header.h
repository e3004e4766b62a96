// The header of a safetensors file: 8 bytes of length N (little endian), N bytes of JSON, then the tensors' bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace regather::model {

// Where a tensor stands. `begin` and `end` count from the start of the data, `data_begin` from the start of the file.
struct StoredTensor {
  std::string dtype;  // as the format names it: F32, BF16, I64...
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;
};

// The same limit as the format's own library.
inline constexpr uint64_t kLargestHeader = 100'000'000;

// The length N that the first 8 bytes give. `head` holds at least the first 8 bytes, or the whole of a shorter file.
// Throws UsageError when the file is shorter than 8 bytes, N is above kLargestHeader or points beyond the end.
uint64_t header_length(std::string_view head, uint64_t file_size, const std::string& origin);

// Parses and checks a header. `head` holds at least the first 8 + N bytes of a file of `file_size` bytes. Every tensor
// has a known dtype, a shape whose size in bytes is the length of its range, and the ranges cover the data exactly:
// no hole, no overlap, nothing beyond. Throws UsageError that starts with `origin` and names tensor and numbers.
SafetensorsHeader parse_header(std::string_view head, uint64_t file_size, const std::string& origin);

// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace regather::model
