#include "train/export.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "case/case.h"
#include "model/safetensors_file.h"
#include "tests/model/scratch.h"
#include "train/run_case.h"

namespace regather::train {
namespace {

class Export : public testing::Test {
 protected:
  model::SafetensorsFile made(const std::string& case_id, bool record = false) {
    runner_.export_case(parse_id(case_id), {}, file_, record);
    return model::SafetensorsFile(file_);
  }

  static at::Tensor read(const model::SafetensorsFile& file, const std::string& name, c10::ScalarType dtype) {
    const model::StoredTensor& stored = file.header().tensors.at(name);
    at::Tensor tensor = at::empty(stored.shape, dtype);
    file.read(stored, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
    return tensor;
  }

  Runner runner_;
  const model::Scratch scratch_;
  const std::filesystem::path file_ = scratch_.path() / "case.safetensors";
};

TEST_F(Export, HoldsWhatTheCaseIsGivenAndWhatIsRight) {
  const model::SafetensorsFile file = made("ddp/kto/frozen=norms/accumulate=2/fix=none");
  const auto about = nlohmann::json::parse(file.header().metadata.at("regather"));
  EXPECT_EQ(about.at("format"), 1);
  EXPECT_EQ(about.at("micro_batches"), 2);
  EXPECT_EQ(about.at("model").at("hidden"), 32);
  for (const char* name :
       {"initial/lm_head.weight", "reference_model/model.norm.weight", "step1/micro1/rank1/mismatched_ids",
        "step0/micro0/rank0/desirable", "step1/micro0/losses", "step1/update/model.norm.weight"}) {
    EXPECT_TRUE(file.header().tensors.contains(name)) << name;
  }
  EXPECT_FALSE(file.header().tensors.contains("step0/gradient/model.norm.weight")) << "it is frozen";
  EXPECT_EQ(file.header().tensors.at("step0/gradient/lm_head.weight").dtype, "F64");
  EXPECT_TRUE(std::ranges::find(about.at("trainable"), "lm_head.weight") != about.at("trainable").end());
  EXPECT_TRUE(std::ranges::find(about.at("trainable"), "model.norm.weight") == about.at("trainable").end());
}

TEST_F(Export, WithTheRuntimesOwnGradients) {
  const model::SafetensorsFile file = made("ddp/sft/fix=redirect", /*record=*/true);
  const std::string name = "gradient/lm_head.weight";
  const at::Tensor right = read(file, "step1/" + name, at::kDouble);
  const at::Tensor got = read(file, "runtime/step1/rank1/" + name, at::kFloat).to(at::kDouble);
  EXPECT_LT((got - right).norm().item<double>(), 1e-5 * right.norm().item<double>());
  EXPECT_FALSE(made("ddp/sft/fix=redirect").header().tensors.contains("runtime/step1/rank1/" + name));
}

TEST_F(Export, EachRankRecordsItsOwn) {
  const model::SafetensorsFile file = made("ddp/sft/fix=none", /*record=*/true);
  const std::string name = "gradient/lm_head.weight";
  EXPECT_FALSE(at::equal(read(file, "runtime/step0/rank0/" + name, at::kFloat),
                         read(file, "runtime/step0/rank1/" + name, at::kFloat)));
}

}  // namespace
}  // namespace regather::train
