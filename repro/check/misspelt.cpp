#include <fmt/format.h>

#include <algorithm>

#include "repro/check/options.h"
#include "repro/check/setting.h"

namespace regather::check {
namespace {

constexpr size_t kMostFound = 20;  // of one check: a file of nonsense is not listed key by key

class Speller {
 public:
  explicit Speller(Setting& setting) : setting_(setting) {}

  // Keys of an object that are no names and look like one that the object does not have.
  void look(const Json& json, const Names& names, const std::string& where, const std::string& prefix = {}) {
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.items()) {
      const std::string bare = key.starts_with(prefix) ? key.substr(prefix.size()) : key;
      if (is_among(names, bare)) continue;
      const auto meant = looks_like(names, bare);
      if (meant && !json.contains(*meant) && !json.contains(prefix + *meant)) say(key, prefix + *meant, where);
    }
  }

  void say(const std::string& key, const std::string& meant, const std::string& where) {
    if (++found_ > kMostFound) return;
    setting_.find(FindingKind::misspelt, fmt::format("{} is no option; {} is meant?", in_quotes(key), in_quotes(meant)),
                  {fmt::format("{}: {}", where, in_quotes(key))});
  }

 private:
  Setting& setting_;
  size_t found_ = 0;
};

// accelerate/commands/config/config_args.py refuses a key that its ClusterConfig lacks.
void refuse_unknown(const File& file, const Names& names, const char* by, const Json& json, const std::string& where,
                    Setting& setting) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : json.items()) {
    if (is_among(names, key) || looks_like(names, key) || unknown.size() == kMostFound) continue;
    unknown.push_back(fmt::format("{}: {}{}", file.name, where, in_quotes(key)));
  }
  if (!unknown.empty())
    setting.find(FindingKind::refused, fmt::format("{} knows no such key and refuses it", by), unknown);
}

Names cluster_names() {
  Names names = class_names("ClusterConfig");
  names.insert(names.end(), {"fp16", "dynamo_backend"});  // of older files, which accelerate converts
  std::ranges::sort(names);
  return names;
}

}  // namespace

void find_misspelt(const Sources& sources, Setting& setting) {
  Speller speller(setting);
  static const Names of_accelerate = cluster_names();
  for (const File& file : sources.files()) {
    switch (file.kind) {
      case Kind::training:
        speller.look(file.root, training_names(), file.name);
        if (const auto at = file.root.find("fsdp_config"); at != file.root.end()) {
          Json bare = Json::object();
          if (at->is_object()) {
            for (const auto& [key, value] : at->items()) bare[key.starts_with("fsdp_") ? key.substr(5) : key] = nullptr;
          }
          speller.look(bare, fsdp_names(), file.name + ": fsdp_config");
        }
        break;
      case Kind::deepspeed:
        speller.look(file.root, deepspeed_names(), file.name);
        if (const Json* zero = at_path(file.root, "zero_optimization"); zero != nullptr && zero->is_object()) {
          speller.look(*zero, zero_names(), file.name + ": zero_optimization");
          refuse_unknown(file, zero_names(), "DeepSpeed", *zero, "zero_optimization.", setting);
        }
        break;
      case Kind::accelerate:
        speller.look(file.root, of_accelerate, file.name);
        refuse_unknown(file, of_accelerate, "accelerate", file.root, "", setting);
        if (const Json* fsdp = at_path(file.root, "fsdp_config"); fsdp != nullptr) {
          speller.look(*fsdp, fsdp_names(), file.name + ": fsdp_config", "fsdp_");
        }
        if (const Json* deepspeed = at_path(file.root, "deepspeed_config"); deepspeed != nullptr) {
          speller.look(*deepspeed, accelerate_names(), file.name + ": deepspeed_config");
        }
        break;
      case Kind::fsdp:
        speller.look(file.root, fsdp_names(), file.name, "fsdp_");
        break;
      case Kind::adapter:
        speller.look(file.root, class_names("LoraConfig"), file.name);
        break;
      case Kind::launch:
        speller.look(sources.launch()->options, training_names(), file.name);
        for (const std::string& flag : sources.launch()->unknown) {
          setting.find(FindingKind::refused,
                       fmt::format("{} has no flag {}", sources.launch()->launcher, in_quotes(flag)), {file.name});
        }
        break;
      case Kind::model:
      case Kind::packages:
        break;
    }
  }
}

}  // namespace regather::check
