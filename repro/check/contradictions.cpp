#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "repro/check/options.h"
#include "repro/check/setting.h"

namespace regather::check {
namespace {

std::string shown(const Json& value) { return in_quotes(value.dump(-1, ' ', false, Json::error_handler_t::replace)); }

std::optional<double> number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  char* end = nullptr;
  const double parsed = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return std::nullopt;
  return parsed;
}

bool same(const Json& a, const Json& b) {
  if (a.is_boolean() || b.is_boolean()) return truthy(a) == truthy(b);
  const auto x = number(a);
  const auto y = number(b);
  return x && y ? *x == *y : a == b;
}

// What transformers compares once training starts (integrations/deepspeed.py, trainer_config_process): where the
// DeepSpeed configuration says a value that is not auto it must be the trainer's, default or not.
constexpr std::array<std::pair<const char*, const char*>, 8> kMustMatch{
    {{"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
     {"gradient_accumulation_steps", "gradient_accumulation_steps"},
     {"gradient_clipping", "max_grad_norm"},
     {"optimizer.params.lr", "learning_rate"},
     {"optimizer.params.eps", "adam_epsilon"},
     {"optimizer.params.weight_decay", "weight_decay"},
     {"scheduler.params.warmup_max_lr", "learning_rate"},
     {"scheduler.params.warmup_num_steps", "warmup_steps"}}};

struct Trained {
  Json value;
  std::string where;
};

std::optional<Trained> trained(const Sources& sources, const Setting& setting, const char* name) {
  if (const auto said = sources.training(name)) return Trained{said->value, said->where};
  if (const auto otherwise = default_of(classes_of(setting), name); otherwise && !otherwise->value.is_null()) {
    return Trained{otherwise->value, fmt::format("{}, {}", name, otherwise->source)};
  }
  return std::nullopt;
}

void refuse_mismatch(const std::string& key, const Json& theirs, const std::string& where, const Trained& ours,
                     Setting& setting) {
  setting.find(FindingKind::contradiction,
               fmt::format("{} is {} for DeepSpeed and {} for the trainer: transformers raises ValueError before the "
                           "first step; expected the same, or auto",
                           key, shown(theirs), shown(ours.value)),
               {where, ours.where});
}

void compare_with_trainer(const Sources& sources, Setting& setting) {
  if (!sources.trains()) return;
  for (const auto& [path, option] : kMustMatch) {
    if (std::string_view(option) == "warmup_steps" && !sources.training("warmup_steps")) continue;
    auto theirs = sources.deepspeed(path);
    if (!theirs && !sources.has_deepspeed()) theirs = sources.accelerate(path, "deepspeed_config");
    if (!theirs || theirs->value == "auto") continue;
    const auto ours = trained(sources, setting, option);
    if (ours && !same(theirs->value, ours->value)) refuse_mismatch(path, theirs->value, theirs->where, *ours, setting);
  }
  const auto fp16 = sources.training("fp16");
  const auto bf16 = sources.training("bf16");
  if (fp16 && bf16 && truthy(fp16->value) && truthy(bf16->value)) return;  // said already
  for (const char* name : {"fp16", "bf16"}) {
    const auto theirs = sources.deepspeed(fmt::format("{}.enabled", name));
    if (!theirs || theirs->value == "auto") continue;
    const bool ours =
        (setting.axes.dtype == DType::bf16) == (std::string_view(name) == "bf16") && setting.axes.dtype != DType::fp32;
    if (truthy(theirs->value) != ours) {
      refuse_mismatch(fmt::format("{}.enabled", name), theirs->value, theirs->where, {ours, "the trainer's precision"},
                      setting);
    }
  }
}

void check_batch(const Sources& sources, Setting& setting) {
  const auto of = [&](const char* path) -> std::optional<int64_t> {
    const auto said = sources.deepspeed(path);
    return said ? whole(said->value) : std::nullopt;
  };
  const auto all = of("train_batch_size");
  const auto one = of("train_micro_batch_size_per_gpu");
  const auto steps = of("gradient_accumulation_steps");
  if (!all || !one || !steps || *one < 1 || *steps < 1 || *one > 1 << 20 || *steps > 1 << 20) return;
  if (*all % (*one * *steps) != 0) {
    setting.find(
        FindingKind::contradiction,
        fmt::format("train_batch_size {} is no multiple of {} x {}: DeepSpeed expects train_micro_batch_size_per_gpu "
                    "x gradient_accumulation_steps x processes",
                    *all, *one, *steps),
        {sources.deepspeed("train_batch_size")->where});
  }
}

// accelerate/utils/dataclasses.py, DeepSpeedPlugin._deepspeed_config_checks.
void check_ignored_fields(const Sources& sources, Setting& setting) {
  const auto file = sources.accelerate("deepspeed_config_file", "deepspeed_config");
  if (!file) return;
  std::vector<std::string> both;
  for (const char* key :
       {"gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
        "offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model"}) {
    if (const auto said = sources.accelerate(key, "deepspeed_config")) both.push_back(said->where);
  }
  const File* accelerate = sources.first(Kind::accelerate);
  if (const auto at = accelerate->root.find("mixed_precision"); at != accelerate->root.end() && !at->is_null()) {
    both.push_back(fmt::format("{}: mixed_precision", accelerate->name));
  }
  if (both.empty()) return;
  setting.find(FindingKind::refused,
               "beside deepspeed_config_file these belong into the DeepSpeed file: accelerate raises ValueError "
               "(accelerate 1.15.0, accelerate/utils/dataclasses.py)",
               both);
}

void check_deepspeed(const Sources& sources, Setting& setting) {
  if (!sources.has_deepspeed()) return;
  const auto fp16 = sources.deepspeed("fp16.enabled");
  const auto bf16 = sources.deepspeed("bf16.enabled");
  const auto on = [](const std::optional<Said>& said) { return said && said->value != "auto" && truthy(said->value); };
  if (on(fp16) && on(bf16)) {
    setting.find(FindingKind::contradiction,
                 "fp16 and bf16 are both on: DeepSpeed refuses (deepspeed 0.19.2, deepspeed/runtime/config.py)",
                 {fp16->where, bf16->where});
  }
  check_batch(sources, setting);
  if (!sources.deepspeed("zero_optimization") && sources.trains()) {
    setting.find(
        FindingKind::refused,
        "no zero_optimization: accelerate raises ValueError (accelerate 1.15.0, accelerate/utils/dataclasses.py)",
        {sources.deepspeed_name()});
  }
  const auto zero = sources.deepspeed("zero_optimization");
  if (zero && zero->value.is_object() && setting.sharding_known && setting.axes.backend != Backend::zero3) {
    std::vector<std::string> without;
    for (const auto& [key, value] : zero->value.items()) {
      if (key.starts_with("stage3_") || key == "offload_param")
        without.push_back(fmt::format("{}.{}", zero->where, key));
    }
    if (!without.empty()) {
      setting.find(FindingKind::ignored, "these have no effect below ZeRO stage 3", without);
    }
  }
}

void check_ways(const Sources& sources, Setting& setting) {
  const File* file = sources.first(Kind::accelerate);
  if (file != nullptr && setting.sharding_known) {
    const auto holds = [&](const char* key) {
      const auto at = file->root.find(key);
      return at != file->root.end() && at->is_object() && !at->empty();
    };
    const bool fsdp = setting.axes.backend == Backend::fsdp1 || setting.axes.backend == Backend::fsdp2;
    const bool zero = setting.axes.backend == Backend::zero1 || setting.axes.backend == Backend::zero2 ||
                      setting.axes.backend == Backend::zero3;
    if (holds("deepspeed_config") && !zero) {
      setting.find(FindingKind::ignored, "deepspeed_config has no effect: distributed_type is not DEEPSPEED",
                   {fmt::format("{}: deepspeed_config", file->name)});
    }
    if (holds("fsdp_config") && !fsdp) {
      setting.find(FindingKind::ignored, "fsdp_config has no effect: distributed_type is not FSDP",
                   {fmt::format("{}: fsdp_config", file->name)});
    }
  }
  const auto config = sources.training("fsdp_config");
  if (config && config->value.is_object() && !config->value.empty() && setting.sharding_known &&
      setting.axes.backend != Backend::fsdp2 && setting.axes.backend != Backend::fsdp1) {
    setting.find(FindingKind::ignored, "fsdp_config has no effect without fsdp", {config->where});
  }
  for (const Kind kind : {Kind::deepspeed, Kind::accelerate, Kind::adapter, Kind::model, Kind::fsdp}) {
    const auto of_kind = [&](const File& f) { return f.kind == kind; };
    if (std::ranges::count_if(sources.files(), of_kind) < 2) continue;
    std::vector<std::string> names;
    for (const File& f : sources.files()) {
      if (of_kind(f)) names.push_back(f.name);
    }
    setting.find(FindingKind::contradiction, fmt::format("more than one {}: the first is taken", name(kind)), names);
  }
}

}  // namespace

void find_contradictions(const Sources& sources, Setting& setting) {
  const bool zero = setting.axes.backend == Backend::zero1 || setting.axes.backend == Backend::zero2 ||
                    setting.axes.backend == Backend::zero3;
  if (setting.sharding_known && zero) {
    compare_with_trainer(sources, setting);
    check_ignored_fields(sources, setting);
  }
  check_deepspeed(sources, setting);
  check_ways(sources, setting);
  for (const File& file : sources.files()) {
    if (file.repeated.empty()) continue;
    std::vector<std::string> where;
    for (const std::string& key : file.repeated) where.push_back(fmt::format("{}: {}", file.name, key));
    setting.find(FindingKind::contradiction, "a key stands twice in one mapping: the last counts", where);
  }
}

}  // namespace regather::check
