// A launch command taken apart: the launcher's own flags, the script, and what the script is given.
#pragma once

#include <string>
#include <vector>

#include "repro/check/tree.h"

namespace regather::check {

struct Launch {
  std::string launcher;              // accelerate, deepspeed, torchrun, trl
  Json flags = Json::object();       // the launcher's own, without dashes: "num_processes": 8
  std::string script;                // "train.py", "sft" of trl
  Json options = Json::object();     // the script's, as HfArgumentParser reads them: "bf16": true
  std::vector<std::string> files;    // that the script's --config names
  std::vector<std::string> unknown;  // flags that the launcher does not have
};

// `words` as find_launch gives them.
Launch parse_launch(const std::string& file, const std::vector<std::string>& words);

// Of $NPROC and the like: what only the machine knows.
bool is_unset(const Json& value);

}  // namespace regather::check
