// config.json as transformers writes and wrote it, and what is refused.
#include "model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "scratch.h"

namespace regather::model {
namespace {

using Json = nlohmann::json;

Json written() { return Json::parse(std::ifstream(REGATHER_SOURCE_DIR "/tests/data/qwen2-gqa/config.json")); }

Config read(const Json& json) {
  const Scratch scratch;
  std::ofstream(scratch.path() / "config.json") << json;
  return read_config(scratch.path());
}

Config with(const std::string& field, const Json& value) {
  Json json = written();
  json[field] = value;
  return read(json);
}

TEST(ReadConfig, ReadsWhatTransformersWrote) {
  const Config config = read(written());
  EXPECT_EQ(config.vocab, 64);
  EXPECT_EQ(config.hidden, 16);
  EXPECT_EQ(config.intermediate, 24);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim(), 4);
  EXPECT_EQ(config.rms_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.padding_token, 0);
  EXPECT_FALSE(config.tied);
  EXPECT_EQ(read_config(REGATHER_SOURCE_DIR "/tests/data/qwen2-untied").rope_theta, 1e6);
  EXPECT_EQ(read_config(REGATHER_SOURCE_DIR "/tests/data/qwen2-untied").padding_token, -1);
  EXPECT_TRUE(read_config(REGATHER_SOURCE_DIR "/tests/data/qwen2-tied").tied);
}

TEST(ReadConfig, ReadsTheOlderForm) {
  Json json = written();
  for (const char* field : {"rope_parameters", "layer_types", "pad_token_id", "rms_norm_eps"}) json.erase(field);
  json["rope_theta"] = 1000000;
  json["sliding_window"] = 32768;
  json["max_window_layers"] = 2;
  json["use_sliding_window"] = true;  // in no layer
  json["use_mrope"] = false;
  json["num_key_value_heads"] = nullptr;
  const Config config = read(json);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.rms_eps, 1e-6);
  EXPECT_EQ(config.kv_heads, 4);
}

TEST(ReadConfig, TakesThetaWhereTransformersTakesIt) {
  Json json = written();
  json["rope_theta"] = 5.0;
  EXPECT_EQ(read(json).rope_theta, 10000.0);
  json["rope_parameters"].erase("rope_theta");
  EXPECT_EQ(read(json).rope_theta, 5.0);
}

TEST(ReadConfig, CountsANegativePaddingTokenFromTheEnd) { EXPECT_EQ(with("pad_token_id", -1).padding_token, 63); }

struct Refusal {
  const char* field;
  Json value;
  std::vector<std::string> words;
};

class RefusedConfig : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfig, NamesFieldFoundAndExpected) {
  try {
    with(GetParam().field, GetParam().value);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    for (const auto& word : GetParam().words)
      EXPECT_NE(text.find(word), std::string::npos) << word << " not in: " << text;
    EXPECT_NE(text.find("config.json"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fields, RefusedConfig,
    testing::Values(
        Refusal{"architectures", {"LlamaForCausalLM"}, {"LlamaForCausalLM", "expected Qwen2ForCausalLM"}},
        Refusal{"architectures", "Qwen2ForCausalLM", {"architectures"}},
        Refusal{"model_type", "qwen3", {"model_type", "qwen3", "\"qwen2\""}},
        Refusal{"vocab_size", nullptr, {"no vocab_size"}}, Refusal{"vocab_size", 0, {"vocab_size is '0'", "from 1"}},
        Refusal{"vocab_size", -5, {"vocab_size is '-5'"}}, Refusal{"vocab_size", "64", {"vocab_size", "an integer"}},
        Refusal{"vocab_size", 64.5, {"64.5", "an integer"}},
        Refusal{"vocab_size", 18446744073709551615ULL, {"18446744073709551615", "an integer"}},
        Refusal{"hidden_size", 1LL << 40, {"1099511627776", "16777216"}},
        Refusal{"hidden_size", 18, {"hidden_size 18 over 4 heads"}},
        Refusal{"hidden_size", 4, {"hidden_size 4 over 4 heads", "twice the heads"}},
        Refusal{"num_key_value_heads", 3, {"4 heads over 3 key-value heads"}},
        Refusal{"head_dim", 8, {"head_dim 8", "= 4"}},
        Refusal{"hidden_act", "gelu", {"hidden_act", "gelu", "\"silu\""}},
        Refusal{"rms_norm_eps", 0, {"rms_norm_eps", "a positive number"}},
        Refusal{"rms_norm_eps", "1e-6", {"rms_norm_eps", "a positive number"}},
        Refusal{"tie_word_embeddings", 1, {"tie_word_embeddings", "true or false"}},
        Refusal{"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e4}}, {"rope_type", "yarn", "\"default\""}},
        Refusal{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}, {"one set of options"}},
        Refusal{"rope_parameters", 3, {"rope_parameters", "an object"}},
        Refusal{"rope_parameters", {{"rope_theta", -1}}, {"rope_theta", "a positive number"}},
        Refusal{"rope_scaling", {{"type", "linear"}, {"factor", 2}}, {"rope_scaling", "linear"}},
        Refusal{
            "layer_types", {"full_attention", "sliding_attention"}, {"sliding_attention", "2 times full_attention"}},
        Refusal{"layer_types", {"full_attention"}, {"layer_types", "2 times"}},
        Refusal{"attention_dropout", 0.1, {"attention_dropout", "0.1"}},
        Refusal{"use_mrope", true, {"use_mrope", "false"}}, Refusal{"pad_token_id", 64, {"pad_token_id", "63"}},
        Refusal{"quantization_config", {{"bits", 4}}, {"quantization_config", "not quantised"}}));

TEST(ReadConfig, RefusesASlidingWindowInUse) {
  Json json = written();
  json.erase("layer_types");
  json["use_sliding_window"] = true;
  json["sliding_window"] = 8;
  json["max_window_layers"] = 1;
  try {
    read(json);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("layers 1 to 1"), std::string::npos) << error.what();
  }
}

TEST(ReadConfig, RefusesAFileThatIsNoObject) {
  EXPECT_THROW(read(Json::array()), UsageError);
  EXPECT_THROW(read(Json::object()), UsageError);
  const Scratch scratch;
  EXPECT_THROW(read_config(scratch.path()), UsageError);
  std::ofstream(scratch.path() / "config.json") << "{";
  EXPECT_THROW(read_config(scratch.path()), UsageError);
  std::ofstream(scratch.path() / "config.json")
      << R"({"a":)" << std::string(1000, '[') << std::string(1000, ']') << '}';
  EXPECT_THROW(read_config(scratch.path()), UsageError);
  std::ofstream(scratch.path() / "config.json") << std::string(2 << 20, ' ');
  EXPECT_THROW(read_config(scratch.path()), UsageError);
}

}  // namespace
}  // namespace regather::model
