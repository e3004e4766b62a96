// Writes safetensors files, right and wrong ones.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regather::model {

struct WrittenTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// Length (or `length`, when given), header text and data, whatever they are.
inline std::string raw_safetensors(const std::string& header, const std::string& data = {}, int64_t length = -1) {
  const uint64_t number = length < 0 ? header.size() : static_cast<uint64_t>(length);
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(number >> (8 * i) & 0xff);
  return out + header + data;
}

inline std::string safetensors_bytes(const std::map<std::string, WrittenTensor>& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return raw_safetensors(header.dump(), data);
}

}  // namespace regather::model
