// On the CPU, by as many threads as torch would take.
#include "kernels/cpu/linear_loss.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/op/device.h"

namespace regather::kernels::op {
namespace {

using at::Tensor;

cpu::Options options_of() {
  cpu::Options options;
  options.threads = at::get_num_threads();
  return options;
}

void run(const Tensor& /*on*/, const Linear& linear, const LossParameters& loss, const Results& results,
         const How& how) {
  cpu::Options options = options_of();
  // Of one row the exponentials take 4 V bytes.
  const int64_t rows = how.workspace / (4 * linear.vocab);
  options.chunk_rows = how.chunk_rows > 0 ? how.chunk_rows : std::clamp<int64_t>(rows, 32, options.chunk_rows);
  options.defect = how.defect;
  cpu::linear_loss(linear, loss, results, options);
}

void log_probabilities(const Tensor& /*on*/, const Linear& linear, float* out) {
  cpu::log_probabilities(linear, out, options_of());
}

void scale(const Tensor& stash, Dtype /*dtype*/, const Tensor& by) {
  if (by.item<float>() != 1) stash.mul_(by);
}

bool products_settled(const Tensor& /*on*/) { return true; }

}  // namespace

const Device& cpu_device() {
  static constexpr Device device{run, log_probabilities, scale, products_settled};
  return device;
}

}  // namespace regather::kernels::op
