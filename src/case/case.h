// A case: one value per axis plus the fixes. Its printed form is its stable id; an id parses back to its case.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regather {

enum class Backend { ddp, zero1, zero2, zero3, fsdp2, fsdp1, single };
enum class Loss { sft, grpo, dpo, kto };
enum class Kernel { fused, eager, chunked };
enum class Checkpoint { none, reentrant, nonreentrant };
enum class Frozen { none, norms, lora, head, embedding, quantised };
enum class Head { untied, tied };
enum class Call { direct, engine, method };
enum class Reference { separate, shared };
enum class DType { fp32, bf16, fp16 };
enum class Accumulate { one, two, manual2 };
enum class Persistence { zero, upstream, huge };
enum class CheckpointAt { forward, call, parent };
enum class Unit { layers, head, head_full_tensor };
enum class LayerInput { same, fp32 };
enum class FullyShard { v2_11, v2_10 };

// Names of fixes, sorted, without repeats.
using Fixes = std::vector<std::string>;

struct Case {
  Backend backend = Backend::ddp;
  Loss loss = Loss::sft;
  Kernel kernel = Kernel::fused;
  Checkpoint checkpoint = Checkpoint::none;
  Frozen frozen = Frozen::none;
  Head head = Head::untied;
  bool head_bias = false;
  Call call = Call::direct;
  Reference reference = Reference::separate;
  DType dtype = DType::fp32;
  int world = 2;  // ranks: 1, 2, 4 or 8
  Accumulate accumulate = Accumulate::one;
  Persistence persistence = Persistence::zero;
  bool early_stop = true;
  bool input_grad = true;
  CheckpointAt checkpoint_at = CheckpointAt::forward;
  // FSDP2. head: the head is a unit of its own, its weight read as it is, or through full_tensor().
  Unit unit = Unit::layers;
  bool two_passes = false;                     // the batch goes through the decoder in two halves before one backward
  LayerInput layer_input = LayerInput::same;   // fp32: hidden states enter each decoder layer in float32
  FullyShard fully_shard = FullyShard::v2_11;  // the release of torch whose FSDP2 it is
  int steps = 2;                               // optimizer steps: 2 or 3
  Fixes fixes{};

  bool has(std::string_view fix) const;
  bool operator==(const Case&) const = default;
};

struct AxisValue {
  std::string axis;
  std::string value;
};

// The name and the values of an axis, the default first, in the order in which they stand in an id.
struct Axis {
  std::string name;
  std::vector<std::string> values;
  bool always_printed = false;
};
const std::vector<Axis>& axes();

// "backend/loss", "axis=value" for each axis not at its default, then "fix=...".
std::string id(const Case& c);

// Throws UsageError naming the part that does not parse, or why the combination is illegal.
Case parse_id(std::string_view id);

// The value of every axis in axis order (no fixes).
std::vector<AxisValue> axis_values(const Case& c);

// Sets one axis. Throws UsageError for an unknown axis or value, naming the legal ones.
void set_axis(Case& c, std::string_view axis, std::string_view value);

// Why the combination means nothing (tied with frozen head; engine with redirect), or nullopt.
std::optional<std::string> illegal(const Case& c);

}  // namespace regather
