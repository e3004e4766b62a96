// The losses in double on the host, from the formulas: what the references of all devices share.
#pragma once

#include <cstdint>
#include <vector>

namespace regather::kernels::testing {

// What LossParameters points to, on the host.
struct HostParameters {
  int64_t length = 0;
  std::vector<float> advantages;
  std::vector<float> old_log_probabilities;
  std::vector<float> reference_log_probabilities;
  std::vector<bool> desirable;
  double kl = 0;
};

enum class LossName { sft, grpo, dpo, kto };

struct Coefficients {
  double loss = 0;
  std::vector<double> by_row;
};

// lp [N]; kept: which rows take part.
Coefficients coefficients(LossName loss, const HostParameters& given, const std::vector<double>& lp,
                          const std::vector<bool>& kept);

}  // namespace regather::kernels::testing
