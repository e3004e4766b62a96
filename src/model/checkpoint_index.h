// Which safetensors files a Hugging Face folder consists of.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace regather::model {

// Tensor name -> file name inside the folder, from the text of model.safetensors.index.json. A file name is a plain
// one: no separator, no leading dot; links are followed, since a download cache consists of them. Throws UsageError.
std::map<std::string, std::string> parse_index(std::string_view text, const std::string& origin);

// The same for a folder: model.safetensors if it is there (the map is then empty and `single` its path), else the
// index.
struct CheckpointIndex {
  std::filesystem::path single;
  std::map<std::string, std::string> shards;
};
CheckpointIndex find_checkpoint(const std::filesystem::path& folder);

}  // namespace regather::model
