// The operators beneath autograd on CUDA: checks, memory from torch's allocator, torch's current stream.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "kernels/context.h"
#include "kernels/linear_loss.h"
#include "kernels/op/outputs.h"
#include "kernels/scale_gradient.h"

namespace regather::kernels::op {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

Dtype dtype_of(const Tensor& tensor, const char* name) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return Dtype::bf16;
    case at::kHalf:
      return Dtype::fp16;
    case at::kFloat:
      return Dtype::fp32;
    default:
      TORCH_CHECK(false, "regather: ", name, " is ", tensor.scalar_type(), ", not bfloat16, float16 or float32");
  }
}

// A device's context, and who may use it. Never destroyed: at exit the driver may be gone.
struct Shared {
  std::mutex mutex;
  std::map<int, std::unique_ptr<Context>> contexts;

  static Shared& get() {
    static auto* shared = new Shared;
    return *shared;
  }
  // For the current device; the mutex is held.
  Context& context(int device) {
    std::unique_ptr<Context>& found = contexts[device];
    if (found == nullptr) found = std::make_unique<Context>();
    return *found;
  }
};

// A tensor that the kernels read, made dense if it is not; it lives until the call is enqueued, and its memory until
// the stream has come past it.
class Given {
 public:
  explicit Given(const Tensor& reference) : device_(reference.device()) {}

  template <class T>
  const T* pointer(const Optional& tensor, const char* name, at::ScalarType type, int64_t count) {
    if (!tensor.has_value() || !tensor->defined()) return nullptr;
    TORCH_CHECK(tensor->scalar_type() == type, "regather: ", name, " is ", tensor->scalar_type(), ", not ", type);
    TORCH_CHECK(tensor->numel() == count, "regather: ", name, " has ", tensor->numel(), " values, not ", count);
    return static_cast<const T*>(dense(*tensor, name));
  }
  const void* dense(const Tensor& tensor, const char* name) {
    TORCH_CHECK(tensor.device() == device_, "regather: ", name, " is on ", tensor.device(), ", hidden on ", device_);
    kept_.push_back(tensor.contiguous());
    return kept_.back().const_data_ptr();
  }

 private:
  c10::Device device_;
  std::vector<Tensor> kept_;
};

// Torch's own for the device, found without its CUDA library, which a build for the CPU lacks.
Stream current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return static_cast<Stream>(guard.getStreamNativeHandle(guard.getStream(device)));
}

// What all losses are given.
struct Head {
  const Tensor& hidden;
  const Tensor& weight;
  const Tensor& targets;
  const Optional& bias;
  int64_t ignore_index;

  int64_t tokens() const { return targets.numel(); }
  int64_t length() const { return hidden.size(-2); }
};

struct How {
  int64_t workspace;
  bool float_weight_gradient;
  bool deterministic;
};

Linear linear_of(const Head& head, Given& given) {
  TORCH_CHECK(head.weight.dim() == 2 && head.hidden.dim() >= 2 && head.hidden.size(-1) == head.weight.size(1),
              "regather: hidden ", head.hidden.sizes(), " and weight ", head.weight.sizes(),
              " are not [..., H] and [V, H]");
  TORCH_CHECK(head.hidden.sizes().slice(0, static_cast<size_t>(head.hidden.dim() - 1)) == head.targets.sizes(),
              "regather: targets ", head.targets.sizes(), " do not fit hidden ", head.hidden.sizes());
  TORCH_CHECK(head.weight.scalar_type() == head.hidden.scalar_type(), "regather: weight is ", head.weight.scalar_type(),
              ", hidden ", head.hidden.scalar_type());
  Linear linear;
  linear.rows = head.tokens();
  linear.width = head.weight.size(1);
  linear.vocab = head.weight.size(0);
  linear.dtype = dtype_of(head.hidden, "hidden");
  linear.hidden = given.dense(head.hidden, "hidden");
  linear.weight = given.dense(head.weight, "weight");
  linear.bias = given.pointer<void>(head.bias, "bias", head.weight.scalar_type(), linear.vocab);
  linear.targets = given.pointer<int64_t>(head.targets, "targets", at::kLong, linear.rows);
  linear.ignore_index = head.ignore_index;
  return linear;
}

Tensor workspace_of(size_t bytes, const Tensor& like) {
  return at::empty({static_cast<int64_t>(bytes)}, like.options().dtype(at::kByte));
}

Outputs run(const Head& head, const How& how, Given& given, const LossParameters& loss) {
  const c10::DeviceGuard guard(head.hidden.device());
  const Linear linear = linear_of(head, given);
  Options options;
  options.deterministic = how.deterministic;
  options.chunk_rows =
      std::max<int64_t>(1, chunk_rows_within(linear, loss, static_cast<size_t>(std::max<int64_t>(how.workspace, 0))));
  const auto floats = head.hidden.options().dtype(at::kFloat);
  Tensor value = at::empty({}, floats);
  Tensor hidden_gradient = at::empty(head.hidden.sizes(), head.hidden.options());
  Tensor weight_gradient = at::empty(head.weight.sizes(), how.float_weight_gradient ? floats : head.weight.options());
  Tensor bias_gradient = at::empty({linear.bias != nullptr ? linear.vocab : 0}, floats);
  Tensor log_probabilities = at::empty(head.targets.sizes(), floats);
  const Tensor workspace = workspace_of(workspace_bytes(linear, loss, options), head.hidden);
  Results results;
  results.loss = value.data_ptr<float>();
  results.hidden_gradient = hidden_gradient.data_ptr();
  results.weight_gradient = weight_gradient.data_ptr();
  results.weight_dtype = how.float_weight_gradient ? Dtype::fp32 : linear.dtype;
  results.bias_gradient = linear.bias != nullptr ? bias_gradient.data_ptr<float>() : nullptr;
  results.log_probabilities = log_probabilities.data_ptr<float>();
  Shared& shared = Shared::get();
  const std::lock_guard lock(shared.mutex);
  linear_loss(shared.context(head.hidden.get_device()), linear, loss, results, options, workspace.data_ptr(),
              current_stream(head.hidden.device()));
  return {value, hidden_gradient, weight_gradient, bias_gradient, log_probabilities};
}

Outputs sft(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias,
            int64_t ignore_index, int64_t workspace, bool float_weight_gradient, bool deterministic) {
  Given given(hidden);
  return run({hidden, weight, targets, bias, ignore_index}, {workspace, float_weight_gradient, deterministic}, given,
             Sft{});
}

int64_t sequences_of(const Tensor& targets) {
  TORCH_CHECK(targets.dim() == 2, "regather: targets ", targets.sizes(), " are not [B, T]");
  return targets.size(0);
}

Outputs grpo(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Tensor& advantages,
             const Optional& old_log_probabilities, const Optional& reference_log_probabilities, double epsilon_low,
             double epsilon_high, double beta, const Optional& bias, int64_t ignore_index, int64_t workspace,
             bool float_weight_gradient, bool deterministic) {
  const int64_t sequences = sequences_of(targets);
  Given given(hidden);
  Grpo loss;
  loss.length = targets.size(1);
  loss.advantages = given.pointer<float>(advantages, "advantages", at::kFloat, sequences);
  loss.old_log_probabilities =
      given.pointer<float>(old_log_probabilities, "old_log_probabilities", at::kFloat, targets.numel());
  loss.reference_log_probabilities =
      given.pointer<float>(reference_log_probabilities, "reference_log_probabilities", at::kFloat, targets.numel());
  loss.epsilon_low = static_cast<float>(epsilon_low);
  loss.epsilon_high = static_cast<float>(epsilon_high);
  loss.beta = static_cast<float>(beta);
  return run({hidden, weight, targets, bias, ignore_index}, {workspace, float_weight_gradient, deterministic}, given,
             loss);
}

Outputs dpo(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
            const Tensor& reference_log_probabilities, double beta, const Optional& bias, int64_t ignore_index,
            int64_t workspace, bool float_weight_gradient, bool deterministic) {
  sequences_of(targets);
  Given given(hidden);
  Dpo loss;
  loss.length = targets.size(1);
  loss.reference_log_probabilities =
      given.pointer<float>(reference_log_probabilities, "reference_log_probabilities", at::kFloat, targets.numel());
  loss.beta = static_cast<float>(beta);
  return run({hidden, weight, targets, bias, ignore_index}, {workspace, float_weight_gradient, deterministic}, given,
             loss);
}

Outputs kto(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
            const Tensor& reference_log_probabilities, const Tensor& desirable, const Tensor& kl, double beta,
            const Optional& bias, int64_t ignore_index, int64_t workspace, bool float_weight_gradient,
            bool deterministic) {
  const int64_t sequences = sequences_of(targets);
  Given given(hidden);
  Kto loss;
  loss.length = targets.size(1);
  loss.reference_log_probabilities =
      given.pointer<float>(reference_log_probabilities, "reference_log_probabilities", at::kFloat, targets.numel());
  loss.desirable = given.pointer<bool>(desirable, "desirable", at::kBool, sequences);
  loss.kl = given.pointer<float>(kl, "kl", at::kFloat, 1);
  loss.beta = static_cast<float>(beta);
  return run({hidden, weight, targets, bias, ignore_index}, {workspace, float_weight_gradient, deterministic}, given,
             loss);
}

Tensor of_reference(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias,
                    int64_t ignore_index) {
  const c10::DeviceGuard guard(hidden.device());
  Given given(hidden);
  const Linear linear = linear_of({hidden, weight, targets, bias, ignore_index}, given);
  Tensor out = at::empty(targets.sizes(), hidden.options().dtype(at::kFloat));
  const Tensor workspace = workspace_of(log_probabilities_workspace_bytes(linear), hidden);
  Shared& shared = Shared::get();
  const std::lock_guard lock(shared.mutex);
  log_probabilities(shared.context(hidden.get_device()), linear, out.data_ptr<float>(), workspace.data_ptr(),
                    current_stream(hidden.device()));
  return out;
}

void scale_stash(const Tensor& stash, const Tensor& by) {
  const c10::DeviceGuard guard(stash.device());
  TORCH_CHECK(by.numel() == 1 && by.device() == stash.device(), "regather: the loss's gradient is no scalar");
  const Tensor factor = by.to(at::kFloat);
  scale_gradient(stash.data_ptr(), stash.numel(), dtype_of(stash, "the gradient"), factor.const_data_ptr<float>(),
                 current_stream(stash.device()));
}

bool products_settled(const Tensor& on) {
  const c10::DeviceGuard guard(on.device());
  Shared& shared = Shared::get();
  const std::lock_guard lock(shared.mutex);
  return shared.context(on.get_device()).state().products.settled();
}

}  // namespace

TORCH_LIBRARY_IMPL(regather, CUDA, library) {
  library.impl("_linear_sft", sft);
  library.impl("_linear_grpo", grpo);
  library.impl("_linear_dpo", dpo);
  library.impl("_linear_kto", kto);
  library.impl("linear_log_probabilities", of_reference);
  library.impl("_scale_stash", scale_stash);
  library.impl("_products_settled", products_settled);
}

}  // namespace regather::kernels::op
