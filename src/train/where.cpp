#include "train/where.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <utility>

namespace regather::train {
namespace {

// A decoder layer's parts in the order of its forward.
constexpr std::array<std::string_view, 9> kParts{"input_layernorm.", ".q_proj.",  ".k_proj.",
                                                 ".v_proj.",         ".o_proj.",  "post_attention_layernorm.",
                                                 ".gate_proj.",      ".up_proj.", ".down_proj."};

// Before the layers, a layer, after the layers; within a layer the part.
std::pair<int, size_t> place_in_forward(std::string_view name) {
  if (name.find("embed_tokens") != std::string_view::npos) return {-1, 0};
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return {1 << 30, name.find("lm_head") == std::string_view::npos ? 0 : 1};
  int layer = 0;
  std::from_chars(name.data() + at + kLayers.size(), name.data() + name.size(), layer);
  const auto part = std::find_if(kParts.begin(), kParts.end(),
                                 [&](std::string_view p) { return name.find(p) != std::string_view::npos; });
  return {layer, static_cast<size_t>(part - kParts.begin())};
}

}  // namespace

Where where(const Place& place, const torch::nn::Module& root) {
  if (place.module == nullptr && place.parameter == nullptr) return {};
  std::string runs;
  std::string reads;
  std::string parameter;
  for (const auto& item : root.named_modules()) {
    const auto* module = dynamic_cast<const model::Module*>(item.value().get());
    if (module == nullptr) continue;
    if (module == place.module) runs = item.key();
    if (const std::string name = module->name_of(place.parameter); !name.empty()) {
      reads = item.key();
      parameter = item.key() + "." + name;
    }
  }
  if (runs.empty()) return {.module = reads, .parameter = parameter, .collective = {}};
  const bool within = reads.starts_with(runs);  // else it was read before the module began
  return {.module = runs, .parameter = within ? parameter : "", .collective = {}};
}

std::string nearest_to_loss(const std::vector<std::string>& parameters) {
  std::string last;  // among parts of one place, a layer's adapters, the later one
  for (const std::string& name : parameters) {
    if (last.empty() || place_in_forward(name) >= place_in_forward(last)) last = name;
  }
  return last;
}

std::string owner_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return std::string(dot == std::string_view::npos ? "" : name.substr(0, dot));
}

}  // namespace regather::train
