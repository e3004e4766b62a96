#include "model/config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "model/json_file.h"

namespace regather::model {
namespace {

using Json = nlohmann::json;
constexpr size_t kLargestFile = 1 << 20;
constexpr int64_t kLargestSize = int64_t{1} << 24;

// The fields of one file; null counts as absent, as in transformers.
class Fields {
 public:
  Fields(const Json& json, std::string origin) : json_(json), origin_(std::move(origin)) {}

  [[noreturn]] void fail(std::string_view name, const Json& found, std::string_view expected) const {
    throw UsageError(fmt::format("{}: {} is {}; expected {}", origin_, name, short_text(found), expected));
  }

  const Json* find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const {
    const Json* value = find(name);
    if (!value) return std::nullopt;
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(high)
                                                  : value->is_number_integer();
    if (!fits || value->get<int64_t>() < low || value->get<int64_t>() > high) {
      fail(name, *value, fmt::format("an integer from {} to {}", low, high));
    }
    return value->get<int64_t>();
  }

  int64_t size(const char* name) const {
    const auto value = integer(name, 1, kLargestSize);
    if (!value) throw UsageError(fmt::format("{}: no {}", origin_, name));
    return *value;
  }

  double positive(const char* name, double otherwise) const {
    const Json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_number() || !(value->get<double>() > 0) || !std::isfinite(value->get<double>())) {
      fail(name, *value, "a positive number");
    }
    return value->get<double>();
  }

  bool flag(const char* name) const {
    const Json* value = find(name);
    if (value && !value->is_boolean()) fail(name, *value, "true or false");
    return value && value->get<bool>();
  }

  // The option is absent or has the one value that is supported.
  void require(const char* name, const Json& supported) const {
    const Json* value = find(name);
    if (value && *value != supported) fail(name, *value, supported.dump() + ", the only one supported");
  }

  const std::string& origin() const { return origin_; }

 private:
  static std::string short_text(const Json& value) {
    return printable(value.dump(-1, ' ', true, Json::error_handler_t::replace));
  }

  const Json& json_;
  std::string origin_;
};

void check_architecture(const Fields& fields) {
  if (const Json* names = fields.find("architectures")) {
    const auto wanted = Json("Qwen2ForCausalLM");
    if (!names->is_array() || std::find(names->begin(), names->end(), wanted) == names->end()) {
      fields.fail("architectures", *names, "Qwen2ForCausalLM among them");
    }
  } else if (!fields.find("model_type")) {
    throw UsageError(
        fmt::format("{}: neither architectures nor model_type; expected Qwen2ForCausalLM, qwen2", fields.origin()));
  }
  fields.require("model_type", "qwen2");
}

// transformers 5 keeps the rotary options in rope_parameters; before, rope_theta stood alone beside rope_scaling.
double rope_theta(const Fields& fields) {
  constexpr double kDefault = 10000.0;
  const double outer = fields.positive("rope_theta", kDefault);
  // transformers lets rope_scaling win over rope_parameters.
  const char* name = fields.find("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const Json* inner = fields.find(name);
  if (!inner) return outer;
  if (!inner->is_object()) fields.fail(name, *inner, "an object");
  const Fields rope(*inner, fields.origin() + ": " + name);
  rope.require("rope_type", "default");
  rope.require("type", "default");
  for (const auto& [key, value] : inner->items()) {
    if (value.is_object()) fields.fail(name, *inner, "one set of options for all layers");
  }
  return rope.positive("rope_theta", outer);
}

void check_attention(const Fields& fields, int64_t layers) {
  if (const Json* types = fields.find("layer_types")) {
    const bool right = types->is_array() && static_cast<int64_t>(types->size()) == layers &&
                       std::all_of(types->begin(), types->end(), [](const Json& t) { return t == "full_attention"; });
    if (!right) fields.fail("layer_types", *types, fmt::format("{} times full_attention", layers));
  } else if (fields.flag("use_sliding_window") && fields.find("sliding_window")) {
    constexpr int64_t kDefaultFull = 28;
    const int64_t full = fields.integer("max_window_layers", 0, kLargestSize).value_or(kDefaultFull);
    if (full < layers) {
      throw UsageError(fmt::format("{}: sliding window in layers {} to {}; expected full attention in all",
                                   fields.origin(), full, layers - 1));
    }
  }
  if (const Json* dropout = fields.find("attention_dropout")) {
    if (!dropout->is_number() || dropout->get<double>() != 0) fields.fail("attention_dropout", *dropout, "0");
  }
  fields.require("use_mrope", false);
}

}  // namespace

Config read_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  const Json json = parse_object(read_text(path, kLargestFile), path.string());
  const Fields fields(json, path.string());
  check_architecture(fields);
  if (const Json* packed = fields.find("quantization_config")) {
    fields.fail("quantization_config", *packed, "weights that are not quantised");
  }

  Config config;
  config.vocab = fields.size("vocab_size");
  config.hidden = fields.size("hidden_size");
  config.intermediate = fields.size("intermediate_size");
  config.layers = fields.size("num_hidden_layers");
  config.heads = fields.size("num_attention_heads");
  config.kv_heads = fields.integer("num_key_value_heads", 1, kLargestSize).value_or(config.heads);
  config.rms_eps = fields.positive("rms_norm_eps", config.rms_eps);
  config.rope_theta = rope_theta(fields);
  config.tied = fields.flag("tie_word_embeddings");
  const int64_t padding = fields.integer("pad_token_id", -config.vocab, config.vocab - 1).value_or(-1);
  // A negative one counts from the end, as torch.nn.Embedding takes it; absent means none.
  config.padding_token = fields.find("pad_token_id") && padding < 0 ? padding + config.vocab : padding;
  fields.require("hidden_act", "silu");
  check_attention(fields, config.layers);

  if (config.hidden % (2 * config.heads) != 0) {
    throw UsageError(fmt::format("{}: hidden_size {} over {} heads; expected a multiple of twice the heads",
                                 path.string(), config.hidden, config.heads));
  }
  if (config.heads % config.kv_heads != 0) {
    throw UsageError(fmt::format("{}: {} heads over {} key-value heads; expected a multiple", path.string(),
                                 config.heads, config.kv_heads));
  }
  if (const auto head_dim = fields.integer("head_dim", 1, kLargestSize); head_dim && *head_dim != config.head_dim()) {
    throw UsageError(fmt::format("{}: head_dim {}; expected hidden_size / num_attention_heads = {}", path.string(),
                                 *head_dim, config.head_dim()));
  }
  return config;
}

}  // namespace regather::model
