// The configuration of a Qwen2 causal decoder, as Hugging Face's config.json has it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace regather::model {

struct Config {
  int64_t vocab = 256;
  int64_t hidden = 32;
  int64_t intermediate = 64;
  int64_t layers = 2;
  int64_t heads = 2;
  int64_t kv_heads = 2;
  double rms_eps = 1e-6;
  double rope_theta = 10000.0;
  int64_t padding_token = -1;  // the embedding's row without gradient; negative: none
  bool tied = false;
  bool head_bias = false;
  int64_t lora_rank = 0;  // 0: no adapters
  double lora_alpha = 8;

  int64_t head_dim() const { return hidden / heads; }
};

// Reads config.json of a Qwen2ForCausalLM. Throws UsageError for another architecture, an unsupported option
// (rope scaling, sliding window in use, another activation), an absent field, or sizes that do not fit together.
Config read_config(const std::filesystem::path& folder);

}  // namespace regather::model
