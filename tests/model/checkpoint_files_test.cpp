// Folders that transformers wrote load; folders that do not fit say which tensor, what was found, what was expected.
#include "model/checkpoint_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "golden.h"
#include "safetensors_writer.h"
#include "scratch.h"

namespace regather::model {
namespace {

std::shared_ptr<CausalLM> load(const std::filesystem::path& folder, const std::function<void(Config&)>& change = {}) {
  Config config = read_config(folder);
  if (change) change(config);
  auto model = std::make_shared<CausalLM>(config);
  initialise(*model, 1);
  load_weights(*model, folder);
  return model;
}

void expect_equal(const CausalLM& a, const CausalLM& b) {
  const auto left = distinct_parameters(a);
  const auto right = distinct_parameters(b);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i].second, right[i].second)) << left[i].first;
}

// A copy of a checkpoint whose single file's tensors a test may change before it is written.
class Edited {
 public:
  explicit Edited(const std::string& variant) {
    std::filesystem::copy(checkpoint_folder(variant), scratch_.path());
    const SafetensorsFile file(scratch_.path() / "model.safetensors");
    for (const auto& [name, stored] : file.header().tensors) {
      auto& tensor = tensors[name];
      tensor.dtype = stored.dtype;
      tensor.shape = stored.shape;
      tensor.bytes.resize(stored.end - stored.begin);
      file.read(stored, std::as_writable_bytes(std::span(tensor.bytes)));
    }
  }
  const std::filesystem::path& write() {
    std::ofstream(scratch_.path() / "model.safetensors", std::ios::binary) << safetensors_bytes(tensors);
    return scratch_.path();
  }
  const std::filesystem::path& folder() const { return scratch_.path(); }
  std::map<std::string, WrittenTensor> tensors;

 private:
  Scratch scratch_;
};

void expect_refused(const std::filesystem::path& folder, const std::vector<std::string>& words,
                    const std::function<void(Config&)>& change = {}) {
  try {
    load(folder, change);
    ADD_FAILURE() << "loaded";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    for (const auto& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " not in: " << text;
  }
}

const std::string kQuery = "model.layers.1.self_attn.q_proj.weight";
const std::string kEmbedding = "model.embed_tokens.weight";

TEST(LoadWeights, ShardedAndSingleFoldersHoldTheSameModel) {
  expect_equal(*load(checkpoint_folder("tiny")), *load(checkpoint_folder("tiny-sharded")));
}

TEST(LoadWeights, ATiedFolderHasNoHeadOfItsOwn) {
  const auto model = load(checkpoint_folder("tied"));
  EXPECT_TRUE(model->config().tied);
  EXPECT_TRUE(model->head().weight_handle().is_same(model->backbone().embedding().weight_handle()));
}

TEST(LoadWeights, AnUntiedModelTakesATiedFoldersEmbeddingAsItsHead) {
  const auto model = load(checkpoint_folder("tied"), [](Config& config) { config.tied = false; });
  EXPECT_FALSE(model->head().weight_handle().is_same(model->backbone().embedding().weight_handle()));
  EXPECT_TRUE(at::equal(model->head().weight_handle(), model->backbone().embedding().weight_handle()));
}

TEST(LoadWeights, ATiedModelIgnoresAnUntiedFoldersHead) {
  const auto tied = load(checkpoint_folder("untied"), [](Config& config) { config.tied = true; });
  const auto untied = load(checkpoint_folder("untied"));
  EXPECT_TRUE(at::equal(tied->head().weight_handle(), untied->backbone().embedding().weight_handle()));
}

TEST(LoadWeights, AdaptersAndHeadBiasKeepTheirInitialValues) {
  const auto change = [](Config& config) {
    config.head_bias = true;
    config.lora_rank = 2;
  };
  const auto loaded = load(checkpoint_folder("tiny"), change);
  CausalLM initial(loaded->config());
  initialise(initial, 1);
  const auto a = distinct_parameters(*loaded);
  const auto b = distinct_parameters(initial);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool own = a[i].first.find("lora") != std::string::npos || a[i].first == "lm_head.bias";
    EXPECT_EQ(at::equal(a[i].second, b[i].second), own) << a[i].first;
  }
}

TEST(LoadWeights, HalfAndDoublePrecisionBecomeFloat32) {
  const auto want = load(checkpoint_folder("untied"));
  const std::map<std::string, std::pair<at::ScalarType, double>> kinds = {
      {"F64", {at::kDouble, 0}}, {"BF16", {at::kBFloat16, 4e-3}}, {"F16", {at::kHalf, 5e-4}}};
  for (const auto& [dtype, kind] : kinds) {
    Edited edited("untied");
    for (const auto& [name, parameter] : distinct_parameters(*want)) {
      const Tensor values = parameter.detach().to(kind.first).contiguous();
      edited.tensors[name].dtype = dtype;
      edited.tensors[name].bytes.assign(static_cast<const char*>(values.data_ptr()), values.nbytes());
    }
    const auto got = distinct_parameters(*load(edited.write()));
    const auto expected = distinct_parameters(*want);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].second.scalar_type(), at::kFloat);
      EXPECT_LE(distance(got[i].second, expected[i].second), kind.second) << dtype << ' ' << got[i].first;
    }
  }
}

TEST(LoadWeights, DerivedTablesOfOldFoldersAreSkipped) {
  Edited edited("untied");
  edited.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {1}, std::string(4, '\0')};
  load(edited.write());
}

TEST(LoadWeights, RefusesAMissingTensor) {
  Edited edited("untied");
  edited.tensors.erase(kQuery);
  expect_refused(edited.write(), {"no tensor '" + kQuery + "'", "1 of 27 missing"});
}

TEST(LoadWeights, RefusesAMissingHeadUnlessTheFolderTies) {
  Edited edited("untied");
  edited.tensors.erase("lm_head.weight");
  expect_refused(edited.write(), {"no tensor 'lm_head.weight'"});
}

TEST(LoadWeights, RefusesAnAdditionalTensor) {
  Edited edited("untied");
  edited.tensors["model.layers.0.self_attn.q_norm.weight"] = {"F32", {1}, std::string(4, '\0')};
  expect_refused(edited.write(), {"'model.layers.0.self_attn.q_norm.weight'", "2 layers"});
  expect_refused(checkpoint_folder("head-bias"), {"'lm_head.bias'", "without head bias"});
}

TEST(LoadWeights, NamesAtMostAFewOfManyTensors) {
  Edited edited("untied");
  std::erase_if(edited.tensors, [](const auto& entry) { return entry.first.starts_with("model.layers.1."); });
  expect_refused(edited.write(), {"and 7 more", "12 of 27 missing"});
}

TEST(LoadWeights, RefusesAWrongShape) {
  Edited edited("untied");
  edited.tensors[kQuery].shape = {8, 32};
  expect_refused(edited.write(), {"'" + kQuery + "'", "[8, 32]", "expected [16, 16]"});
}

TEST(LoadWeights, RefusesAnIntegerTensor) {
  Edited edited("untied");
  edited.tensors[kQuery].dtype = "I32";
  expect_refused(edited.write(), {"'" + kQuery + "'", "dtype 'I32'", "expected F32, F64, F16 or BF16"});
}

TEST(LoadWeights, RefusesValuesThatAreNotFinite) {
  Edited edited("untied");
  edited.tensors[kQuery].bytes.replace(4, 4, std::string("\x00\x00\xc0\x7f", 4));
  expect_refused(edited.write(), {"'" + kQuery + "'", "1 of 256 values not finite"});
}

TEST(LoadWeights, RefusesATruncatedFile) {
  Edited edited("untied");
  const auto file = edited.write() / "model.safetensors";
  const auto size = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, size - 1);
  expect_refused(edited.folder(), {"model.safetensors", "truncated"});
  std::filesystem::resize_file(file, 100);
  expect_refused(edited.folder(), {"in a file of 100", "truncated"});
  std::filesystem::resize_file(file, 0);
  expect_refused(edited.folder(), {"0 bytes", "at least 8"});
}

TEST(LoadWeights, ARefusedFolderLeavesTheModelAsItWas) {
  Edited edited("untied");
  edited.tensors[kQuery].shape = {8, 32};
  edited.write();
  CausalLM model(read_config(edited.folder()));
  initialise(model, 1);
  const auto before = clone_as(model, at::kFloat);
  EXPECT_THROW(load_weights(model, edited.folder()), UsageError);
  expect_equal(model, *before);
}

// A sharded folder with one thing changed in its index or files.
class Sharded {
 public:
  Sharded() {
    std::filesystem::copy(checkpoint_folder("tiny-sharded"), scratch_.path());
    index = nlohmann::json::parse(std::ifstream(index_path()));
  }
  const std::filesystem::path& write() {
    std::ofstream(index_path()) << index;
    return scratch_.path();
  }
  std::filesystem::path index_path() const { return scratch_.path() / "model.safetensors.index.json"; }
  nlohmann::json index;

 private:
  Scratch scratch_;
};

TEST(LoadWeights, RefusesAnIndexThatItsFilesContradict) {
  Sharded absent;
  absent.index["weight_map"]["model.norm.bias"] = "model-00001-of-00003.safetensors";
  expect_refused(absent.write(), {"model-00001-of-00003.safetensors", "no tensor 'model.norm.bias'"});
  Sharded unplaced;
  unplaced.index["weight_map"].erase(kEmbedding);
  expect_refused(unplaced.write(), {"'" + kEmbedding + "'", "the index does not place there"});
  Sharded no_file;
  std::filesystem::remove(no_file.write() / "model-00002-of-00003.safetensors");
  expect_refused(no_file.write(), {"model-00002-of-00003.safetensors", "No such file"});
}

TEST(LoadWeights, FollowsLinksAsADownloadCacheHasThem) {
  Scratch cache;
  Scratch snapshot;
  std::filesystem::copy(checkpoint_folder("tiny"), cache.path());
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(cache.path() / name, snapshot.path() / name);
  }
  expect_equal(*load(snapshot.path()), *load(checkpoint_folder("tiny")));
}

}  // namespace
}  // namespace regather::model
