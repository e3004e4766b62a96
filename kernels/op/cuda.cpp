// On CUDA: memory from torch's allocator, torch's current stream.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "kernels/context.h"
#include "kernels/linear_loss.h"
#include "kernels/op/device.h"
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

void run(const Tensor& on, const Linear& linear, const LossParameters& loss, const Results& results, const How& how) {
  const c10::DeviceGuard guard(on.device());
  Options options;
  options.deterministic = how.deterministic;
  options.chunk_rows =
      how.chunk_rows > 0
          ? how.chunk_rows
          : std::max<int64_t>(
                1, chunk_rows_within(linear, loss, static_cast<size_t>(std::max<int64_t>(how.workspace, 0))));
  options.defect = how.defect;
  const Tensor workspace = workspace_of(workspace_bytes(linear, loss, options), on);
  Shared& shared = Shared::get();
  const std::lock_guard lock(shared.mutex);
  linear_loss(shared.context(on.get_device()), linear, loss, results, options, workspace.data_ptr(),
              current_stream(on.device()));
}

void log_probabilities(const Tensor& on, const Linear& linear, float* out) {
  const c10::DeviceGuard guard(on.device());
  const Tensor workspace = workspace_of(log_probabilities_workspace_bytes(linear), on);
  Shared& shared = Shared::get();
  const std::lock_guard lock(shared.mutex);
  kernels::log_probabilities(shared.context(on.get_device()), linear, out, workspace.data_ptr(),
                             current_stream(on.device()));
}

void scale(const Tensor& stash, Dtype dtype, const Tensor& by) {
  const c10::DeviceGuard guard(stash.device());
  const Tensor factor = by.to(at::kFloat);
  scale_gradient(stash.data_ptr(), stash.numel(), dtype, factor.const_data_ptr<float>(),
                 current_stream(stash.device()));
}

bool products_settled(const Tensor& on) {
  const c10::DeviceGuard guard(on.device());
  Shared& shared = Shared::get();
  const std::lock_guard lock(shared.mutex);
  return shared.context(on.get_device()).state().products.settled();
}

}  // namespace

const Device& cuda_device() {
  static constexpr Device device{run, log_probabilities, scale, products_settled};
  return device;
}

}  // namespace regather::kernels::op
