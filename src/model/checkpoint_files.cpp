#include "model/checkpoint_files.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <bit>
#include <map>
#include <vector>

#include "base/error.h"
#include "model/checkpoint_index.h"
#include "model/json_file.h"
#include "model/safetensors_file.h"

namespace regather::model {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors holds little-endian numbers");

constexpr size_t kMostNamed = 5;

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) out += (i ? ", " : "") + printable(names[i]);
  if (names.size() > kMostNamed) out += fmt::format(" and {} more", names.size() - kMostNamed);
  return out;
}

at::ScalarType float_type(const std::string& dtype, const std::string& what) {
  if (dtype == "F32") return at::kFloat;
  if (dtype == "F64") return at::kDouble;
  if (dtype == "F16") return at::kHalf;
  if (dtype == "BF16") return at::kBFloat16;
  throw UsageError(fmt::format("{}: dtype {}; expected F32, F64, F16 or BF16", what, printable(dtype)));
}

// Files and, for each tensor, the file that is to hold it.
struct Checkpoint {
  std::vector<SafetensorsFile> files;
  std::map<std::string, const SafetensorsFile*> tensors;
};

Checkpoint open_checkpoint(const std::filesystem::path& folder) {
  const CheckpointIndex index = find_checkpoint(folder);
  Checkpoint out;
  if (!index.single.empty()) {
    out.files.emplace_back(index.single);
    for (const auto& [name, tensor] : out.files.front().header().tensors) out.tensors[name] = &out.files.front();
    return out;
  }
  std::map<std::string, size_t> opened;
  for (const auto& [tensor, file] : index.shards) opened.emplace(file, 0);
  out.files.reserve(opened.size());  // the map below points into it
  for (auto& [file, position] : opened) {
    position = out.files.size();
    out.files.emplace_back(folder / file);
  }
  for (const auto& [tensor, file] : index.shards) {
    const SafetensorsFile& shard = out.files[opened[file]];
    if (!shard.header().tensors.contains(tensor)) {
      throw UsageError(
          fmt::format("{}: no tensor {}, which the index places there", shard.origin(), printable(tensor)));
    }
    out.tensors[tensor] = &shard;
  }
  for (const SafetensorsFile& shard : out.files) {
    for (const auto& [name, tensor] : shard.header().tensors) {
      const auto placed = out.tensors.find(name);
      if (placed == out.tensors.end() || placed->second != &shard) {
        throw UsageError(
            fmt::format("{}: tensor {}, which the index does not place there", shard.origin(), printable(name)));
      }
    }
  }
  return out;
}

void check(const SafetensorsFile& file, const std::string& name, const Tensor& parameter) {
  const StoredTensor& stored = file.header().tensors.at(name);
  const auto what = fmt::format("{}: tensor {}", file.origin(), printable(name));
  static_cast<void>(float_type(stored.dtype, what));
  if (parameter.sizes() != at::IntArrayRef(stored.shape)) {
    throw UsageError(
        fmt::format("{}: shape {}; expected {}", what, shape_text(stored.shape), shape_text(parameter.sizes().vec())));
  }
}

void copy(const SafetensorsFile& file, const std::string& name, const Tensor& parameter) {
  const StoredTensor& stored = file.header().tensors.at(name);
  const auto what = fmt::format("{}: tensor {}", file.origin(), printable(name));
  const Tensor values = at::empty(stored.shape, float_type(stored.dtype, what));
  file.read(stored, {static_cast<std::byte*>(values.data_ptr()), values.nbytes()});
  const int64_t broken = values.numel() - at::isfinite(values).sum().item<int64_t>();
  if (broken > 0) throw UsageError(fmt::format("{}: {} of {} values not finite", what, broken, values.numel()));
  parameter.copy_(values);
}

// Tables that older versions stored beside the weights; they follow from config.json.
bool derived(const std::string& name) { return name.ends_with(".self_attn.rotary_emb.inv_freq"); }

// What the folder need not have: adapters, and the head's bias, which are this runtime's additions.
bool optional(const std::string& name) { return name.find(".lora_") != std::string::npos || name == "lm_head.bias"; }

}  // namespace

void load_weights(CausalLM& model, const std::filesystem::path& folder) {
  const at::NoGradGuard no_grad;
  const Checkpoint checkpoint = open_checkpoint(folder);
  const std::string head = "lm_head.weight";
  const std::string embedding = "model.embed_tokens.weight";

  std::map<std::string, Tensor> parameters;
  for (const auto& [name, parameter] : distinct_parameters(model)) parameters.emplace(name, parameter);

  std::vector<std::string> extra;
  for (const auto& [name, file] : checkpoint.tensors) {
    const auto parameter = parameters.find(name);
    if (parameter != parameters.end()) {
      check(*file, name, parameter->second);
    } else if (!derived(name) && !(name == head && model.config().tied)) {
      extra.push_back(name);
    }
  }
  std::vector<std::string> missing;
  std::map<std::string, std::string> source;  // parameter -> tensor
  for (const auto& [name, parameter] : parameters) {
    if (checkpoint.tensors.contains(name)) {
      source[name] = name;
    } else if (name == head && checkpoint.tensors.contains(embedding) && read_config(folder).tied) {
      source[name] = embedding;
    } else if (!optional(name)) {
      missing.push_back(name);
    }
  }
  if (!missing.empty()) {
    throw UsageError(fmt::format("{}: no tensor {} ({} of {} missing)", folder.string(), list(missing), missing.size(),
                                 parameters.size()));
  }
  if (!extra.empty()) {
    throw UsageError(fmt::format("{}: tensor {}, which a Qwen2ForCausalLM of {} layers{} does not have",
                                 folder.string(), list(extra), model.config().layers,
                                 model.config().head_bias ? "" : " without head bias"));
  }
  for (const auto& [name, tensor] : source) copy(*checkpoint.tensors.at(tensor), tensor, parameters.at(name));
}

}  // namespace regather::model
