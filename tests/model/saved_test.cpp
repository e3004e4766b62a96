// A non-reentrant checkpoint compares saved tensors by position, so a layer has to save what transformers' layer saves.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <unordered_map>

#include "golden.h"

namespace regather::model {
namespace {

thread_local std::vector<std::string>* recording = nullptr;
thread_local const std::unordered_map<const void*, std::string>* parameter_names = nullptr;

std::string describe(const at::Tensor& tensor) {
  const auto name = parameter_names->find(tensor.data_ptr());
  if (name != parameter_names->end()) return name->second;
  std::string dtype = tensor.scalar_type() == at::kFloat ? "float32" : c10::toString(tensor.scalar_type());
  return fmt::format("{} {}", dtype, shape_text(tensor.sizes().vec()));
}

struct RecordingHooks : torch::autograd::SavedVariableHooks {
  at::Tensor saved;
  void call_pack_hook(const at::Tensor& tensor) override {
    recording->push_back(describe(tensor));
    saved = tensor;
  }
  at::Tensor call_unpack_hook() override { return saved; }
};

struct RecordingEngine : torch::autograd::Engine {
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return recording ? std::make_unique<RecordingHooks>() : nullptr;
  }
};

torch::autograd::Engine& recording_engine() {
  static RecordingEngine engine;
  return engine;
}

class SavedTest : public testing::TestWithParam<std::string> {};

TEST_P(SavedTest, LayerSavesWhatTransformersSaves) {
  torch::autograd::set_default_engine_stub(recording_engine);
  const auto model = load_variant(GetParam());
  std::unordered_map<const void*, std::string> names;
  for (const auto& [name, parameter] : distinct_parameters(*model)) names[parameter.data_ptr()] = name;
  parameter_names = &names;
  std::vector<std::string> saved;
  model->backbone().layers().front()->run_forward = [&](const Module::Body& block, const at::Tensor& hidden) {
    recording = &saved;
    const at::Tensor out = block(hidden);
    recording = nullptr;
    return out;
  };
  const Golden golden(GetParam());
  (*model)(golden.tensor("input_ids"));
  EXPECT_EQ(nlohmann::json(saved), golden.info()["saved"]);
}

INSTANTIATE_TEST_SUITE_P(Variants, SavedTest, testing::Values("tiny", "gqa", "lora"));

}  // namespace
}  // namespace regather::model
