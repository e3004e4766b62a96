// On CUDA: memory from torch's allocator, torch's current stream.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/context.h"
#include "kernels/linear_loss.h"
#include "kernels/op/pass.h"
#include "kernels/scale_gradient.h"

namespace regather::kernels::op {
namespace {

using at::Tensor;

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

// Torch's own for the device, found without its CUDA library, which a build for the CPU lacks.
Stream current_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return static_cast<Stream>(guard.getStreamNativeHandle(guard.getStream(device)));
}

Tensor workspace_of(size_t bytes, const Tensor& like) {
  return at::empty({static_cast<int64_t>(bytes)}, like.options().dtype(at::kByte));
}

}  // namespace

void run_on_cuda(const Tensor& hidden, const Linear& linear, const LossParameters& loss, const Results& results,
                 const How& how) {
  const c10::DeviceGuard guard(hidden.device());
  Options options;
  options.deterministic = how.deterministic;
  options.chunk_rows =
      std::max<int64_t>(1, chunk_rows_within(linear, loss, static_cast<size_t>(std::max<int64_t>(how.workspace, 0))));
  const Tensor workspace = workspace_of(workspace_bytes(linear, loss, options), hidden);
  Shared& shared = Shared::get();
  const std::lock_guard lock(shared.mutex);
  linear_loss(shared.context(hidden.get_device()), linear, loss, results, options, workspace.data_ptr(),
              current_stream(hidden.device()));
}

namespace {

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
  library.impl("linear_log_probabilities", of_reference);
  library.impl("_scale_stash", scale_stash);
  library.impl("_products_settled", products_settled);
}

}  // namespace regather::kernels::op
