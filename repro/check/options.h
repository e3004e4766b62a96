// What the released packages call their options (options.json, made by regather_peers.options): for recognising files,
// for keys that look misspelt, and for the defaults of what no file says.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "repro/check/tree.h"

namespace regather::check {

struct OptionClass {
  std::string name;     // "DPOConfig"
  std::string package;  // "trl"
  std::string version;  // the release that was read
  std::string file;     // where the class stands in the package
  Json fields;          // name -> default
};

const std::vector<OptionClass>& option_classes();

// Fields of one class in every release of it that was read; "SFTConfig".
bool has_field(std::string_view class_name, const std::string& field);

struct Default {
  Json value;
  std::string source;  // "DPOConfig's default (trl 1.6.0 and 1.16.0, trl/trainer/dpo_config.py)"
};
// In the first of these classes that has the field; releases that disagree leave the newest's.
std::optional<Default> default_of(const std::vector<std::string>& classes, const std::string& field);

// Whether a launcher ("accelerate", "torchrun", "deepspeed") has the flag, and whether a value follows it.
std::optional<bool> flag_takes_value(std::string_view launcher, const std::string& flag);

// Keys that a file of a kind may have.
using Names = std::vector<std::string>;
const Names& training_names();    // of any training configuration
const Names& fsdp_names();        // without their prefix fsdp_
const Names& accelerate_names();  // of accelerate's flags, which are the keys of its file's groups too
const Names& deepspeed_names();   // at the top of a ds_config.json
const Names& zero_names();        // under zero_optimization
const Names& class_names(std::string_view class_name);

// Whether transformers ties the head of this model type where config.json does not say.
bool ties_by_default(const std::string& model_type);

bool is_among(const Names& sorted, const std::string& name);

// The name that `given` looks like a misspelling of: two edits away at most, and fewer than a third of its length.
std::optional<std::string> looks_like(const Names& names, const std::string& given);

}  // namespace regather::check
