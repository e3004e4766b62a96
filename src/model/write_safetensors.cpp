#include "model/write_safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "model/safetensors_header.h"

namespace regather::model {

void write_safetensors(const std::filesystem::path& file, const std::map<std::string, TensorBytes>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  // The format allows no gap between tensors: the widest elements first keeps all of them aligned.
  std::vector<const std::pair<const std::string, TensorBytes>*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::ranges::stable_sort(order, [](const auto* a, const auto* b) { return a->second.width > b->second.width; });

  nlohmann::ordered_json header = {{"__metadata__", metadata}};
  std::string data;
  for (const auto* entry : order) {
    const TensorBytes& tensor = entry->second;
    const size_t begin = data.size();
    data += tensor.bytes;
    header[entry->first] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string whole;
  for (int i = 0; i < 8; ++i) whole += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 0xff);
  whole += text;
  const std::string head = whole;
  parse_header(head, head.size() + data.size(), file.string());  // what is written can be read
  whole += data;
  replace_file(file.string(), whole);
}

}  // namespace regather::model
