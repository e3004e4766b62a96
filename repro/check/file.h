// One configuration file: what kind it is, told by its content alone, and what it says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "repro/check/tree.h"

namespace regather::check {

enum class Kind {
  deepspeed,   // a ds_config.json
  accelerate,  // what `accelerate config` writes
  training,    // TrainingArguments or a configuration of TRL, as HfArgumentParser and TrlParser read them
  fsdp,        // TrainingArguments' fsdp_config
  adapter,     // peft's adapter_config.json
  model,       // the model's config.json
  launch,      // a shell script with a launch command
  packages     // `pip freeze`
};
const char* name(Kind kind);

struct File {
  std::string name;  // as given
  Kind kind = Kind::training;
  Json root;                          // an object; of `packages`: name -> version
  std::vector<std::string> words;     // of `launch`
  std::vector<std::string> repeated;  // keys that stand twice in one mapping: the last counts
};

// Throws UsageError: no text, no JSON or YAML, over a limit (tree.h), or none of the kinds.
File parse_file(const std::string& name, std::string_view text);

}  // namespace regather::check
