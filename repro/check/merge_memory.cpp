#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "matrix/judge/conditions.h"
#include "repro/check/options.h"
#include "repro/check/setting.h"

namespace regather::check {
namespace {

// gradient_checkpointing and its kwargs, under their old and new names (transformers/training_args.py).
void merge_checkpoint(const Sources& sources, Setting& setting) {
  const auto own = sources.fsdp("activation_checkpointing");
  const bool by_fsdp = setting.axes.backend == Backend::fsdp2 && own && truthy(own->value);
  const auto said = sources.training({"activation_checkpointing", "gradient_checkpointing"});
  const auto otherwise = default_of(classes_of(setting), "gradient_checkpointing");
  const bool on = said ? truthy(said->value) : otherwise && otherwise->value == true;
  if (by_fsdp && on) {
    setting.find(
        FindingKind::refused,
        fmt::format("FSDP's own activation checkpointing and the trainer's gradient_checkpointing{} are both on: "
                    "Trainer raises ValueError (transformers 5.24.0, transformers/trainer.py); expected "
                    "gradient_checkpointing: false",
                    said ? "" : ", on by " + otherwise->source),
        said ? std::vector{own->where, said->where} : std::vector{own->where});
  }
  if (by_fsdp) {
    setting.axes.checkpoint = Checkpoint::nonreentrant;
    setting.axes.checkpoint_at = CheckpointAt::call;
    setting.assume("the checkpoint is non-reentrant and stands around each layer's call",
                   "checkpoint_wrapper's default (accelerate 1.15.0, accelerate/utils/fsdp_utils.py, fsdp2_apply_ac)");
    return;
  }
  if (!said && otherwise) {
    setting.assume(on ? "gradient checkpointing is on" : "gradient checkpointing is off", otherwise->source);
  }
  const auto kwargs = sources.training({"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"});
  setting.kwargs_given = kwargs && kwargs->value.is_object() && !kwargs->value.empty();
  if (!on) {
    if (setting.kwargs_given) {
      setting.find(FindingKind::ignored, "gradient_checkpointing_kwargs have no effect: gradient checkpointing is off",
                   {kwargs->where});
    }
    return;
  }
  setting.axes.checkpoint = Checkpoint::nonreentrant;
  if (const auto at = setting.versions.find("transformers"); at != setting.versions.end()) {
    if (matrix::VersionRange("<5.23").holds(at->second)) setting.axes.checkpoint_at = CheckpointAt::call;
  }
  if (!setting.kwargs_given) {
    setting.assume("use_reentrant is false",
                   "transformers' default (transformers 5.24.0, transformers/modeling_utils.py)");
    return;
  }
  if (const Json* reentrant = at_path(kwargs->value, "use_reentrant")) {
    if (truthy(*reentrant)) setting.axes.checkpoint = Checkpoint::reentrant;
  } else if (std::ranges::any_of(kwargs->value.items(), [](const auto& entry) {
               return entry.key() != "every_n_layers" && entry.key() != "offload";
             })) {
    setting.axes.checkpoint = Checkpoint::reentrant;
    setting.assume("use_reentrant is true",
                   "torch.utils.checkpoint's default where other options are given without it (torch 2.11.0)");
  }
  if (const Json* early = at_path(kwargs->value, "early_stop"); early != nullptr && !truthy(*early)) {
    setting.axes.early_stop = false;
  }
  if (const Json* check = at_path(kwargs->value, "determinism_check"); check != nullptr && *check == "none") {
    setting.find(FindingKind::outside,
                 "determinism_check none leaves out the checkpoint's comparison; the measured cells "
                 "make it",
                 {kwargs->where});
  }
  for (const char* key : {"every_n_layers", "offload"}) {
    if (at_path(kwargs->value, key) != nullptr) {
      setting.find(FindingKind::outside, fmt::format("{} is no axis of a case", key), {kwargs->where});
    }
  }
}

// The command line and the training configuration before accelerate's mixed_precision (transformers/training_args.py:
// ACCELERATE_MIXED_PRECISION counts where neither fp16 nor bf16 is on).
void merge_dtype(const Sources& sources, Setting& setting) {
  const auto fp16 = sources.training("fp16");
  const auto bf16 = sources.training("bf16");
  const bool asks_fp16 = fp16 && truthy(fp16->value);
  bool asks_bf16 = bf16 && truthy(bf16->value);
  if (asks_fp16 && asks_bf16) {
    setting.find(FindingKind::contradiction,
                 "fp16 and bf16 are both on: TrainingArguments raises ValueError; expected one of them",
                 {fp16->where, bf16->where});
  }
  // TRL: where bf16 is not said it is on unless fp16 is.
  const bool of_trl = setting.trainer != "transformers" && !setting.trainer.empty() && sources.trains();
  const bool by_default = of_trl && !bf16 && !asks_fp16;
  auto mixed = sources.accelerate("mixed_precision");
  if (mixed && lower(mixed->value) == "no") mixed.reset();
  if (by_default) {
    asks_bf16 = true;
    setting.assume("bf16",
                   "TRL's default where neither bf16 nor fp16 is said (trl 1.6.0 and 1.16.0, "
                   "trl/trainer/base_config.py)");
  }
  std::string dtype = asks_fp16 ? "fp16" : asks_bf16 ? "bf16" : "";
  if (mixed && !dtype.empty() && lower(mixed->value) != dtype) {
    setting.find(FindingKind::contradiction,
                 fmt::format("mixed precision is {} in one place and {} in another{}: the trainer's own, {}, counts",
                             lower(mixed->value), dtype, by_default ? " (TRL's default)" : "", dtype),
                 {mixed->where, asks_fp16 ? fp16->where
                                : bf16    ? bf16->where
                                          : "bf16"});
  }
  if (dtype.empty() && mixed) dtype = lower(mixed->value);
  for (const char* name : {"fp16", "bf16"}) {
    const auto on = sources.deepspeed(fmt::format("{}.enabled", name));
    if (dtype.empty() && on && on->value != "auto" && truthy(on->value)) dtype = name;
  }
  const auto load = sources.training({"dtype", "torch_dtype"});
  if (dtype.empty() && load && (load->value == "bfloat16" || load->value == "float16")) {
    dtype = load->value == "bfloat16" ? "bf16" : "fp16";
  }
  if (dtype == "fp8") {
    setting.no_case.push_back("no case stands for fp8");
    return;
  }
  if (dtype.empty()) {
    setting.assume("float32", "no file asks for another precision");
    return;
  }
  if (dtype != "bf16" && dtype != "fp16") {
    throw UsageError(fmt::format("mixed_precision {}: expected no, fp16, bf16 or fp8", in_quotes(dtype)));
  }
  setting.axes.dtype = dtype == "bf16" ? DType::bf16 : DType::fp16;
  if (dtype == "bf16") {
    const bool deepspeed = setting.axes.backend == Backend::zero1 || setting.axes.backend == Backend::zero2 ||
                           setting.axes.backend == Backend::zero3;
    if (!deepspeed) {
      setting.assume("bf16 by autocast or FSDP's policy stands as weights in bf16", "the axis has no mixed precision");
    }
  }
}

void merge_accumulation(const Sources& sources, Setting& setting) {
  auto steps = sources.training("gradient_accumulation_steps");
  const auto file = sources.deepspeed("gradient_accumulation_steps");
  if (!steps && file && file->value != "auto") steps = file;
  if (!steps) steps = sources.accelerate("gradient_accumulation_steps");
  if (!steps) steps = sources.accelerate("gradient_accumulation_steps", "deepspeed_config");
  if (!steps || steps->value == "auto") {
    if (const auto otherwise = default_of(classes_of(setting), "gradient_accumulation_steps"); otherwise) {
      const int64_t number = whole(otherwise->value).value_or(1);
      setting.axes.accumulate = number > 1 ? Accumulate::manual2 : Accumulate::one;
      if (sources.trains()) setting.assume(fmt::format("gradient_accumulation_steps {}", number), otherwise->source);
    }
    return;
  }
  const auto number = whole(steps->value);
  if (!number || *number < 1) throw UsageError(fmt::format("{}: expected a number of micro-batches", steps->where));
  if (*number == 1) return;
  setting.axes.accumulate = Accumulate::manual2;
  setting.assume(fmt::format("accumulation over {} micro-batches stands as accumulate=manual2", *number),
                 "the trainer divides the loss by itself and turns DeepSpeed's scaling off (transformers 5.24.0, "
                 "transformers/trainer.py, training_step)");
}

}  // namespace

void merge_memory(const Sources& sources, Setting& setting) {
  merge_checkpoint(sources, setting);
  merge_dtype(sources, setting);
  merge_accumulation(sources, setting);
  for (const char* key : {"torch_compile", "activation_offloading"}) {
    if (const auto on = sources.training(key); on && truthy(on->value)) {
      setting.find(FindingKind::outside, fmt::format("{} is no axis of a case", key), {on->where});
    }
  }
}

}  // namespace regather::check
