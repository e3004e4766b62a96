// The checkpoints and values that tests/golden/make_qwen2.py wrote.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/checkpoint_files.h"
#include "model/qwen2.h"
#include "model/safetensors_file.h"

namespace regather::model {

inline std::filesystem::path data_folder() { return std::filesystem::path(REGATHER_SOURCE_DIR) / "tests" / "data"; }
inline std::filesystem::path checkpoint_folder(const std::string& variant) {
  return data_folder() / ("qwen2-" + variant);
}

class Golden {
 public:
  explicit Golden(const std::string& variant) : file_(data_folder() / "golden" / (variant + ".safetensors")) {}
  bool has(const std::string& name) const { return file_.header().tensors.contains(name); }
  at::Tensor tensor(const std::string& name) const;
  // "parameters": names in transformers' order; "saved": what autograd saves in a decoder layer.
  nlohmann::json info() const { return nlohmann::json::parse(file_.header().metadata.at("golden")); }
  const SafetensorsHeader& header() const { return file_.header(); }

 private:
  SafetensorsFile file_;
};

// The model of a variant with the checkpoint's weights in float32. "lora" is "gqa" with the golden adapters and a
// frozen base.
std::shared_ptr<CausalLM> load_variant(const std::string& variant);

// Mean cross entropy of each position's next token over the labels that are not -100.
at::Tensor sft_loss(const at::Tensor& logits, const at::Tensor& labels);

// ||got - want|| / ||want||, computed in float64; infinite when `got` is undefined or has another shape.
double distance(const at::Tensor& got, const at::Tensor& want);

}  // namespace regather::model
