#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "matrix/judge/conditions.h"
#include "repro/check/setting.h"

namespace regather::check {
namespace {

enum class Way { none, single, ddp, deepspeed, fsdp, other };

struct Asked {
  Way way = Way::none;
  std::string where;
};

// What accelerate's flags ask for, or its file: one flag overrules the file's distributed_type (accelerate/commands/
// launch.py, _validate_launch_command).
Asked by_accelerate(const Sources& sources) {
  constexpr std::array<std::pair<const char*, Way>, 4> kFlags{
      {{"use_deepspeed", Way::deepspeed}, {"use_fsdp", Way::fsdp}, {"multi_gpu", Way::ddp}, {"cpu", Way::single}}};
  if (sources.launch()) {
    for (const auto& [flag, way] : kFlags) {
      if (sources.launch()->flags.contains(flag)) return {way, fmt::format("{}: --{}", sources.launch_file(), flag)};
    }
    // What TRL ships for its own command line (trl/accelerate_configs).
    if (const auto named = sources.accelerate("accelerate_config")) {
      const std::string text = lower(named->value);
      const Way way = text.starts_with("zero")   ? Way::deepspeed
                      : text.starts_with("fsdp") ? Way::fsdp
                      : text == "multi_gpu"      ? Way::ddp
                      : text == "single_gpu"     ? Way::single
                                                 : Way::none;
      if (way != Way::none) return {way, named->where};
    }
  }
  const File* file = sources.first(Kind::accelerate);
  if (file == nullptr) return {};
  const auto type = file->root.find("distributed_type");
  if (type == file->root.end()) {
    const auto given = [&](const char* key) { return file->root.contains(key) && !file->root.at(key).empty(); };
    const Way way = given("deepspeed_config") ? Way::deepspeed : given("fsdp_config") ? Way::fsdp : Way::none;
    return {way, file->name};
  }
  const std::string text = lower(*type);
  const std::string where = fmt::format("{}: distributed_type", file->name);
  if (text == "deepspeed") return {Way::deepspeed, where};
  if (text == "fsdp") return {Way::fsdp, where};
  if (text == "no") return {Way::single, where};
  if (text.starts_with("multi_")) return {Way::ddp, where};
  return {Way::other, where};
}

bool given(const std::optional<Said>& said) {
  return said && said->value != false && said->value != "" && !(said->value.is_structured() && said->value.empty());
}

// accelerate's file that the launch command names, where it was not given.
std::optional<Said> unread_config(const Sources& sources) {
  if (!sources.launch() || sources.launch()->launcher != "accelerate" || sources.first(Kind::accelerate) != nullptr) {
    return std::nullopt;
  }
  return sources.accelerate("config_file");
}

Way choose_way(const Sources& sources, Setting& setting) {
  const Asked accelerate = by_accelerate(sources);
  auto deepspeed = sources.training({"deepspeed", "deepspeed_config"});
  if (!given(deepspeed)) deepspeed.reset();
  auto fsdp = sources.training("fsdp");
  if (!given(fsdp)) fsdp.reset();
  if (const File* file = sources.first(Kind::fsdp); file != nullptr && !fsdp && accelerate.way != Way::fsdp) {
    fsdp = Said{true, file->name};
    setting.assume("fsdp is on", fmt::format("{} is given, and means nothing without it", file->name));
  }
  if (!deepspeed && sources.has_deepspeed() && accelerate.way != Way::deepspeed) {
    deepspeed = Said{true, sources.deepspeed_name()};
    setting.assume(fmt::format("{} is what TrainingArguments' deepspeed names", sources.deepspeed_name()),
                   "it is given, and no file names another way to it");
  }
  const bool wants_deepspeed = deepspeed || accelerate.way == Way::deepspeed;
  const bool wants_fsdp = fsdp || accelerate.way == Way::fsdp;
  if (wants_deepspeed && wants_fsdp) {
    setting.find(FindingKind::contradiction, "both DeepSpeed and FSDP are asked for: expected one of them",
                 {deepspeed ? deepspeed->where : accelerate.where, fsdp ? fsdp->where : accelerate.where});
    setting.no_case.push_back("both DeepSpeed and FSDP are asked for");
    return Way::none;
  }
  if (wants_deepspeed) {
    if (!sources.has_deepspeed()) {
      const auto file = deepspeed && deepspeed->value.is_string()
                            ? deepspeed
                            : sources.accelerate("deepspeed_config_file", "deepspeed_config");
      const auto flag = sources.accelerate("deepspeed_config_file");
      if (const auto named = file ? file : flag; named && named->value.is_string()) {
        setting.no_case.push_back(
            fmt::format("{} names {}: pass that file too", named->where, in_quotes(named->value.get<std::string>())));
        return Way::none;
      }
    }
    return Way::deepspeed;
  }
  if (wants_fsdp) return Way::fsdp;
  if (accelerate.way == Way::other) {
    setting.no_case.push_back(fmt::format("{} is neither DDP, DeepSpeed nor FSDP", accelerate.where));
    return Way::none;
  }
  if (accelerate.way == Way::none) {
    if (const auto config = unread_config(sources)) {
      setting.no_case.push_back(
          fmt::format("{} names {}: pass that file too", config->where,
                      config->value.is_string() ? in_quotes(config->value.get<std::string>()) : "a file"));
      return Way::none;
    }
  }
  return accelerate.way;
}

std::optional<int64_t> product(const std::optional<Said>& a, const std::optional<Said>& b) {
  const auto x = a ? whole(a->value) : std::optional<int64_t>(1);
  const auto y = b ? whole(b->value) : std::nullopt;
  if (!x || !y || *x < 1 || *y < 1 || *x > 1 << 20 || *y > 1 << 20) return std::nullopt;
  return *x * *y;
}

std::optional<int64_t> processes(const Sources& sources) {
  if (const auto& launch = sources.launch(); launch && launch->launcher != "accelerate" && launch->launcher != "trl") {
    const auto flag = [&](const char* name) -> std::optional<Said> {
      const auto at = launch->flags.find(name);
      if (at == launch->flags.end()) return std::nullopt;
      return Said{*at, name};
    };
    if (launch->launcher == "torchrun") return product(flag("nnodes"), flag("nproc_per_node"));
    return product(flag("num_nodes"), flag("num_gpus"));
  }
  const auto count = sources.accelerate("num_processes");
  const auto number = count ? whole(count->value) : std::nullopt;
  return number && *number > 0 ? number : std::nullopt;
}

void merge_world(const Sources& sources, Way way, Setting& setting) {
  const auto count = way == Way::single ? std::optional<int64_t>(1) : processes(sources);
  if (!count) {
    setting.assume("two or more processes", "no file says how many");
    return;
  }
  int64_t world = 1;
  for (const int64_t ranks : {2, 4, 8}) {
    if (*count >= ranks) world = ranks;
  }
  setting.axes.world = static_cast<int>(world);
  if (world != *count)
    setting.assume(fmt::format("{} processes stand as {}", *count, world), "the axis has 1, 2, 4 and 8");
}

void merge_stage(const Sources& sources, Setting& setting) {
  auto by_accelerate = sources.accelerate("zero_stage");
  if (!by_accelerate) by_accelerate = sources.accelerate("zero_stage", "deepspeed_config");
  if (const auto named = sources.accelerate("accelerate_config"); !by_accelerate && named) {
    const std::string text = lower(named->value);
    if (text.starts_with("zero")) by_accelerate = Said{Json(text.substr(4)), named->where};
  }
  auto stage = sources.deepspeed("zero_optimization.stage");
  if (stage && stage->value == "auto") stage.reset();
  if (stage && by_accelerate && whole(stage->value) != whole(by_accelerate->value)) {
    setting.find(FindingKind::contradiction,
                 fmt::format("ZeRO stage {} in one place, {} in another: DeepSpeed runs by its own file, {}",
                             stage->value.dump(), by_accelerate->value.dump(), stage->value.dump()),
                 {stage->where, by_accelerate->where});
  }
  std::optional<int64_t> number;
  if (stage) {
    number = whole(stage->value);
  } else if (by_accelerate) {
    number = whole(by_accelerate->value);
  } else if (sources.has_deepspeed() && !sources.deepspeed("zero_optimization.stage")) {
    number = 0;
    setting.assume("ZeRO stage 0", "DeepSpeed's default (deepspeed 0.19.2, deepspeed/runtime/zero/config.py)");
  } else {
    number = 2;
    setting.assume("ZeRO stage 2", "DeepSpeedPlugin's default (accelerate 1.15.0, accelerate/utils/dataclasses.py)");
  }
  const std::string where = stage ? stage->where : by_accelerate ? by_accelerate->where : "";
  if (!number || *number < 0 || *number > 3) {
    throw UsageError(fmt::format("{}: expected a ZeRO stage, 0 to 3", where));
  }
  if (*number == 0) {
    setting.no_case.push_back("no case stands for DeepSpeed without ZeRO (stage 0)");
    return;
  }
  setting.axes.backend = *number == 1 ? Backend::zero1 : *number == 2 ? Backend::zero2 : Backend::zero3;
  setting.sharding_known = true;
}

void merge_persistence(const Sources& sources, Setting& setting) {
  setting.axes.persistence = Persistence::upstream;
  const auto said = sources.deepspeed("zero_optimization.stage3_param_persistence_threshold");
  if (!said) {
    setting.assume("stage3_param_persistence_threshold 100000",
                   "DeepSpeed's default (deepspeed 0.19.2, deepspeed/runtime/zero/config.py)");
    return;
  }
  if (said->value == "auto") {
    setting.assume("stage3_param_persistence_threshold auto stands as DeepSpeed's default",
                   "transformers fills in ten times the hidden size (transformers 5.24.0, integrations/deepspeed.py): "
                   "either leaves matrices partitioned");
    return;
  }
  const auto number = whole(said->value);
  if (!number) throw UsageError(fmt::format("{}: expected a number of elements, or auto", said->where));
  if (*number <= 0) setting.axes.persistence = Persistence::zero;
  if (*number >= 1000000000) setting.axes.persistence = Persistence::huge;
  if (setting.axes.persistence == Persistence::upstream && *number != 100000) {
    setting.assume(fmt::format("stage3_param_persistence_threshold {} stands as DeepSpeed's default", *number),
                   "the axis has 0, 100000 and a threshold above every parameter");
  }
}

void note_deepspeed(const Sources& sources, Setting& setting) {
  for (const char* part : {"optimizer", "param"}) {
    auto device = sources.deepspeed(fmt::format("zero_optimization.offload_{}.device", part));
    const std::string key = fmt::format("offload_{}_device", part);
    if (!device) device = sources.accelerate(key.c_str());
    if (!device) device = sources.accelerate(key.c_str(), "deepspeed_config");
    if (device && lower(device->value) != "none" && lower(device->value) != "no" && device->value != "auto") {
      setting.find(FindingKind::outside, fmt::format("{}s are offloaded; the measured cells keep them in place", part),
                   {device->where});
    }
  }
  constexpr std::array<std::pair<const char*, int64_t>, 5> kSizes{{{"zero_optimization.zero_hpz_partition_size", 1},
                                                                   {"zero_optimization.mics_shard_size", 0},
                                                                   {"tensor_parallel.autotp_size", 1},
                                                                   {"tensor_parallel.tp_size", 1},
                                                                   {"sequence_parallel_size", 1}}};
  for (const auto& [path, most] : kSizes) {
    const auto size = sources.deepspeed(path);
    if (size && whole(size->value).value_or(0) > most) {
      setting.no_case.push_back(fmt::format("{} is no axis of a case", size->where));
    }
  }
  for (const char* key :
       {"zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients"}) {
    const auto on = sources.deepspeed(fmt::format("zero_optimization.{}", key));
    if (on && truthy(on->value)) setting.no_case.push_back(fmt::format("{} is no axis of a case", on->where));
  }
}

void merge_fsdp(const Sources& sources, Setting& setting) {
  auto version = sources.fsdp("version");
  if (const auto named = sources.accelerate("accelerate_config"); !version && named) {
    if (lower(named->value).starts_with("fsdp")) version = Said{lower(named->value).substr(4), named->where};
  }
  int64_t number = 2;
  if (version) {
    number = whole(version->value).value_or(0);
    if (number != 1 && number != 2)
      throw UsageError(fmt::format("{}: expected FSDP's version, 1 or 2", version->where));
  } else if (given(sources.training("fsdp")) || sources.first(Kind::fsdp) != nullptr) {
    setting.assume("FSDP version 2", "fsdp_config's default (transformers 5.24.0, transformers/training_args.py)");
  } else {
    number = 1;
    setting.assume("FSDP version 1",
                   "FullyShardedDataParallelPlugin's default (accelerate 1.15.0, "
                   "accelerate/utils/dataclasses.py)");
  }
  setting.sharding_known = true;
  setting.axes.backend = number == 2 ? Backend::fsdp2 : Backend::fsdp1;
  if (number == 1) {
    setting.no_case.push_back("FSDP1 is in no measured cell: fsdp_version 2 asks for what is measured");
    return;
  }
  if (const auto at = setting.versions.find("torch"); at != setting.versions.end()) {
    if (matrix::VersionRange("<2.11").holds(at->second)) setting.axes.fully_shard = FullyShard::v2_10;
  }
  if (const auto reshard = sources.fsdp("reshard_after_forward"); reshard && !truthy(reshard->value)) {
    setting.find(FindingKind::outside,
                 "parameters stay gathered between forward and backward; the measured cells free them",
                 {reshard->where});
  }
  for (const char* key : {"cpu_offload", "offload_params"}) {
    if (const auto on = sources.fsdp(key); on && truthy(on->value)) {
      setting.find(FindingKind::outside, "parameters are offloaded; the measured cells keep them in place",
                   {on->where});
    }
  }
  if (const auto policy = sources.fsdp("auto_wrap_policy");
      policy && lower(policy->value) != "transformer_based_wrap") {
    setting.find(FindingKind::outside, "the units are not the decoder layers, as they are in the measured cells",
                 {policy->where});
  }
}

void note_parallelism(const Sources& sources, Setting& setting) {
  const File* file = sources.first(Kind::accelerate);
  if (file == nullptr || !file->root.contains("parallelism_config")) return;
  const Json& config = file->root.at("parallelism_config");
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_size") && key.find("dp_") == std::string::npos && whole(value).value_or(1) > 1) {
      setting.no_case.push_back(fmt::format("{}: parallelism_config.{} is no axis of a case", file->name, key));
    }
  }
}

}  // namespace

void merge_sharding(const Sources& sources, Setting& setting) {
  const Way way = choose_way(sources, setting);
  if (const auto config = unread_config(sources); config && way != Way::none) {
    setting.find(FindingKind::missing, "the launch command names accelerate's file, which was not given: pass it too",
                 {config->where});
  }
  if (setting.no_case.empty() || way != Way::none) merge_world(sources, way, setting);
  note_parallelism(sources, setting);
  if (way == Way::deepspeed) {
    merge_stage(sources, setting);
    if (setting.axes.backend == Backend::zero3) merge_persistence(sources, setting);
    note_deepspeed(sources, setting);
    return;
  }
  if (way == Way::fsdp) return merge_fsdp(sources, setting);
  if (way == Way::none && !setting.no_case.empty()) return;
  if (way == Way::none) setting.assume("DDP", "no file asks for DeepSpeed or FSDP");
  const bool alone = way == Way::single || setting.axes.world == 1;
  setting.axes.backend = alone ? Backend::single : Backend::ddp;
  setting.sharding_known = true;
}

}  // namespace regather::check
