// The files of one check and what they say, in the order in which the real tools let one overrule another.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "repro/check/file.h"
#include "repro/check/launch.h"

namespace regather::check {

// A value that a file says; null and what is left to the machine ($NPROC) are not said.
struct Said {
  Json value;
  std::string where;  // "dpo.yaml: bf16"
};

class Sources {
 public:
  explicit Sources(std::vector<File> files);  // throws UsageError: two launch commands
  Sources(const Sources&) = delete;           // it points into its files
  Sources& operator=(const Sources&) = delete;

  const std::vector<File>& files() const { return files_; }
  const File* first(Kind kind) const;
  const std::optional<Launch>& launch() const { return launch_; }
  std::string launch_file() const;
  bool trains() const;  // a training configuration, or a launched script's options

  // Of TrainingArguments, TRL or the model's options, under any of these names: the command line, then the file
  // (TrlParser: what the command line says overrules the file).
  std::optional<Said> training(std::initializer_list<const char*> names) const;
  std::optional<Said> training(const char* name) const { return training({name}); }

  // Of accelerate: its flag, then the file, there at the top or in `group` (deepspeed_config, fsdp_config).
  std::optional<Said> accelerate(const char* name, const char* group = nullptr) const;

  // The ds_config.json that is in force: a file of that kind, or what the training configuration holds in its place.
  std::optional<Said> deepspeed(std::string_view dotted) const;
  bool has_deepspeed() const { return deepspeed_ != nullptr; }
  std::string deepspeed_name() const { return deepspeed_name_; }

  // Of fsdp_config: the training configuration's, a file of that kind, or accelerate's.
  std::optional<Said> fsdp(const char* name) const;

 private:
  std::vector<File> files_;
  std::optional<Launch> launch_;
  const Json* deepspeed_ = nullptr;
  std::string deepspeed_name_;
};

// As Python's str_to_bool and accelerate read it: true, "yes", "true", "1", a number that is not 0.
bool truthy(const Json& value);
// A whole number, also one in a string; nullopt for everything else, "auto" too.
std::optional<int64_t> whole(const Json& value);
std::string lower(const Json& value);  // a string in lower case; a false as "no"

}  // namespace regather::check
