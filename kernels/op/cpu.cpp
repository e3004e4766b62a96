// On the CPU, by as many threads as torch would take.
#include "kernels/cpu/linear_loss.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/op/pass.h"

namespace regather::kernels::op {
namespace {

using at::Tensor;

cpu::Options options_of() {
  cpu::Options options;
  options.threads = at::get_num_threads();
  return options;
}

Tensor of_reference(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const Optional& bias,
                    int64_t ignore_index) {
  Given given(hidden);
  const Linear linear = linear_of({hidden, weight, targets, bias, ignore_index}, given);
  Tensor out = at::empty(targets.sizes(), hidden.options().dtype(at::kFloat));
  cpu::log_probabilities(linear, out.data_ptr<float>(), options_of());
  return out;
}

void scale_stash(const Tensor& stash, const Tensor& by) {
  TORCH_CHECK(by.numel() == 1, "regather: the loss's gradient is no scalar");
  if (by.item<float>() != 1) stash.mul_(by);
}

}  // namespace

void run_on_cpu(const Linear& linear, const LossParameters& loss, const Results& results, const How& how) {
  cpu::Options options = options_of();
  // Of one row the exponentials take 4 V bytes.
  const int64_t rows = how.workspace / (4 * linear.vocab);
  options.chunk_rows = std::clamp<int64_t>(rows, 32, options.chunk_rows);
  cpu::linear_loss(linear, loss, results, options);
}

TORCH_LIBRARY_IMPL(regather, CPU, library) {
  library.impl("linear_log_probabilities", of_reference);
  library.impl("_scale_stash", scale_stash);
}

}  // namespace regather::kernels::op
