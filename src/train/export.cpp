#include "train/export.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/write_safetensors.h"
#include "train/precision.h"
#include "train/prepare.h"
#include "train/step_loss.h"

namespace regather::train {
namespace {

using at::Tensor;

constexpr int kFormat = 1;

const char* dtype_name(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kBFloat16:
      return "BF16";
    case at::kLong:
      return "I64";
    case at::kBool:
      return "BOOL";
    default:
      throw Error("export", fmt::format("no tensor of {} is exported", c10::toString(dtype)), __FILE__, __LINE__);
  }
}

// Tensors by their name in the file, kept alive until it is written.
class Content {
 public:
  void add(const std::string& name, const Tensor& tensor) {
    if (tensor.defined()) tensors_.emplace(name, tensor.detach().contiguous());
  }
  void add(const std::string& prefix, const std::map<std::string, Tensor>& tensors) {
    for (const auto& [name, tensor] : tensors) add(prefix + name, tensor);
  }
  void add(const std::string& prefix, const model::CausalLM& model) {
    for (const auto& [name, parameter] : model::distinct_parameters(model)) add(prefix + name, parameter);
  }

  void write(const std::filesystem::path& file, const std::string& about) const {
    std::map<std::string, model::TensorBytes> bytes;
    for (const auto& [name, tensor] : tensors_) {
      bytes[name] = {.dtype = dtype_name(tensor.scalar_type()),
                     .shape = tensor.sizes().vec(),
                     .width = static_cast<int64_t>(tensor.element_size()),
                     .bytes = {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()}};
    }
    model::write_safetensors(file, bytes, {{"regather", about}});
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

void add_batch(Content& content, const std::string& prefix, const loss::Batch& batch) {
  content.add(prefix + "input_ids", batch.input_ids);
  content.add(prefix + "labels", batch.labels);
  content.add(prefix + "advantages", batch.advantages);
  content.add(prefix + "old_log_probabilities", batch.old_log_probabilities);
  content.add(prefix + "reference_log_probabilities", batch.reference_log_probabilities);
  content.add(prefix + "desirable", batch.desirable);
  content.add(prefix + "mismatched_ids", batch.mismatched_ids);
  content.add(prefix + "mismatched_labels", batch.mismatched_labels);
}

std::string describe(const Case& c, const Setting& setting) {
  const model::Config& m = setting.initial->config();
  const shard::OptimizerOptions& o = setting.optimizer;
  const Precision expected = precision(c, m.layers);
  const std::shared_ptr<model::CausalLM> frozen = model::clone_as(*setting.initial, at::kFloat);
  freeze(*frozen, c.frozen);
  nlohmann::ordered_json trainable = nlohmann::ordered_json::array();
  for (const auto& [name, parameter] : model::distinct_parameters(*frozen)) {
    if (parameter.requires_grad()) trainable.push_back(name);
  }
  return nlohmann::ordered_json{
      {"format", kFormat},
      {"case", id(c)},
      {"model",
       {{"vocab", m.vocab},
        {"hidden", m.hidden},
        {"intermediate", m.intermediate},
        {"layers", m.layers},
        {"heads", m.heads},
        {"kv_heads", m.kv_heads},
        {"rms_eps", m.rms_eps},
        {"rope_theta", m.rope_theta},
        {"padding_token", m.padding_token},
        {"tied", m.tied},
        {"head_bias", m.head_bias},
        {"lora_rank", m.lora_rank},
        {"lora_alpha", m.lora_alpha}}},
      {"optimizer",
       {{"lr", o.lr}, {"beta1", o.beta1}, {"beta2", o.beta2}, {"eps", o.eps}, {"weight_decay", o.weight_decay}}},
      {"steps", c.steps},
      {"micro_batches", micro_batches_of(c)},
      {"world", c.world},
      {"trainable", std::move(trainable)},
      {"tolerance", expected.tolerance},
      {"rounding", expected.rounding}}
      .dump();
}

}  // namespace

void export_case(const std::filesystem::path& file, const Case& c, const Setting& setting, const Reference& reference,
                 const GradientRecord& recorded) {
  Content content;
  content.add("initial/", *setting.initial);
  if (has_reference(c.loss) && c.reference == regather::Reference::separate) {
    content.add("reference_model/", *setting.reference);
  }
  for (size_t step = 0; step < reference.steps.size(); ++step) {
    const ReferenceStep& right = reference.steps[step];
    const std::string of_step = fmt::format("step{}/", step);
    content.add(of_step + "gradient/", right.gradients);
    content.add(of_step + "update/", right.updates);
    for (size_t micro = 0; micro < right.micro_batches.size(); ++micro) {
      const MicroBatch& given = right.micro_batches[micro];
      const std::string of_micro = fmt::format("{}micro{}/", of_step, micro);
      Tensor losses = at::empty({static_cast<int64_t>(given.losses.size())}, at::kDouble);
      std::ranges::copy(given.losses, losses.mutable_data_ptr<double>());
      content.add(of_micro + "losses", losses);
      for (size_t rank = 0; rank < given.batches.size(); ++rank) {
        add_batch(content, fmt::format("{}rank{}/", of_micro, rank), given.batches[rank]);
      }
    }
  }
  for (size_t rank = 0; rank < recorded.size(); ++rank) {
    for (size_t step = 0; step < recorded[rank].size(); ++step) {
      content.add(fmt::format("runtime/step{}/rank{}/gradient/", step, rank), recorded[rank][step]);
    }
  }
  content.write(file, describe(c, setting));
}

}  // namespace regather::train
