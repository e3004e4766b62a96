#include "train/upstream.h"

#include <array>
#include <string_view>

namespace regather::train {
namespace {

struct Words {
  std::string_view ours;  // how our text begins
  const char* theirs;
};

// Engine::backward and OptimizerPartition: DeepSpeed asserts the one and indexes an empty list in the other.
constexpr std::array kWords{
    Words{"backward needs a scalar loss that carries a graph",
          "loss must be a scalar tensor. If you need to pass output gradients, backward() of output tensors"},
    Words{"no gradient arrived at any of the", "list index out of range"},
};

}  // namespace

std::string upstream_text(const Case& c, const Signature& signature) {
  const std::string_view text = signature.text;
  for (const Words& words : kWords) {
    if (text.starts_with(words.ours)) return words.theirs;
  }
  // Liger's GRPO loss unpacks the weight's shape into two numbers before any product; an empty shard has one dimension.
  if (c.loss == Loss::grpo && c.kernel == Kernel::fused && signature.mechanism == "head_read_partitioned" &&
      text.starts_with("size mismatch, got input")) {
    return "not enough values to unpack (expected 2, got 1)";
  }
  return "";
}

}  // namespace regather::train
