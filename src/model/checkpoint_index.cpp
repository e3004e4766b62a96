#include "model/checkpoint_index.h"

#include <fmt/format.h>

#include "base/error.h"
#include "model/json_file.h"

namespace regather::model {
namespace {
constexpr size_t kLargestIndex = 64 << 20;

bool plain(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}
}  // namespace

std::map<std::string, std::string> parse_index(std::string_view text, const std::string& origin) {
  const auto json = parse_object(text, origin);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    throw UsageError(fmt::format("{}: no weight_map: expected an object of tensor name to file name", origin));
  }
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      throw UsageError(fmt::format("{}: the file of tensor {} is a {}; expected a string", origin, printable(tensor),
                                   file.type_name()));
    }
    auto name = file.get<std::string>();
    if (!plain(name)) {
      throw UsageError(fmt::format("{}: the file of tensor {} is {}; expected the name of a file inside the folder",
                                   origin, printable(tensor), printable(name)));
    }
    out.emplace(tensor, std::move(name));
  }
  return out;
}

CheckpointIndex find_checkpoint(const std::filesystem::path& folder) {
  const auto single = folder / "model.safetensors";
  const auto index = folder / "model.safetensors.index.json";
  std::error_code error;
  if (std::filesystem::exists(single, error)) return {single, {}};
  if (std::filesystem::exists(index, error)) return {{}, parse_index(read_text(index, kLargestIndex), index.string())};
  throw UsageError(fmt::format("{}: neither model.safetensors nor model.safetensors.index.json{}", folder.string(),
                               std::filesystem::exists(folder / "pytorch_model.bin", error)
                                   ? "; pytorch_model.bin is not read: save the model as safetensors"
                                   : ""));
}

}  // namespace regather::model
