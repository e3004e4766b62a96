#include "kernels/spans.h"

#include <algorithm>

#include "kernels/error.h"

namespace regather::kernels {

Sequences sequences_of(const Linear& linear, const LossParameters& loss) {
  return std::visit(
      [&](const auto& parameters) -> Sequences {
        using Loss = std::decay_t<decltype(parameters)>;
        if constexpr (std::is_same_v<Loss, Sft>) {
          return {1, linear.rows, 0};
        } else {
          const int64_t length = parameters.length;
          require(length > 0 && linear.rows % length == 0, "rows are no whole number of sequences");
          const int64_t count = linear.rows / length;
          if constexpr (std::is_same_v<Loss, Grpo>) return {count, length, 0};
          if constexpr (std::is_same_v<Loss, Kto>) return {count, length, 1};
          require(count % 2 == 0, "DPO needs as many rejected sequences as chosen ones");
          return {count, length, 2};
        }
      },
      loss);
}

std::vector<Span> spans_of(const Sequences& sequences, int64_t kept, const int32_t* start, int64_t most, int64_t unit) {
  std::vector<Span> spans;
  if (sequences.together == 0) {
    // Chunks of nearly the same size, in whole units: a small last one would cost as much traffic as any other.
    const int64_t step = std::min(most, unit);
    const int64_t units = (kept + step - 1) / step;
    const int64_t chunk_units = most / step;
    const int64_t chunks = (units + chunk_units - 1) / chunk_units;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t first = chunk * units / chunks * step;
      const int64_t last = std::min((chunk + 1) * units / chunks * step, kept);
      spans.push_back({first, last - first});
    }
    return spans;
  }
  for (int64_t sequence = 0; sequence < sequences.count; sequence += sequences.together) {
    const int64_t first = start[sequence];
    const int64_t count = start[sequence + sequences.together] - first;
    if (spans.empty() || spans.back().count + count > most) spans.push_back({first, 0, sequence, 0});
    spans.back().count += count;
    spans.back().sequences += sequences.together;
  }
  return spans;
}

}  // namespace regather::kernels
