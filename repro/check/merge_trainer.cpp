#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "repro/check/options.h"
#include "repro/check/setting.h"

namespace regather::check {
namespace {

struct Trainer {
  const char* name;
  const char* config;
  std::vector<std::string> losses;  // of loss_type, that no other trainer has
};

const std::vector<Trainer>& trainers() {
  static const std::vector<Trainer> all{
      {"sft", "SFTConfig", {"nll", "chunked_nll", "dft"}},
      {"dpo",
       "DPOConfig",
       {"sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired",
        "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"}},
      {"kto", "KTOConfig", {"kto", "apo_zero_unpaired"}},
      {"grpo", "GRPOConfig", {"grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"}},
      {"rloo", "RLOOConfig", {}},
      {"reward", "RewardConfig", {}},
  };
  return all;
}

// The trainers whose configuration has every one of these keys that only TRL's configurations have.
std::set<std::string> by_keys(const Sources& sources) {
  std::set<std::string> left;
  for (const Trainer& t : trainers()) left.insert(t.name);
  bool any = false;
  const auto look = [&](const Json& json) {
    for (const auto& [key, value] : json.items()) {
      if (has_field("TrainingArguments", key) || has_field("ModelConfig", key) || has_field("ScriptArguments", key)) {
        continue;
      }
      std::set<std::string> have;
      for (const Trainer& t : trainers()) {
        if (has_field(t.config, key)) have.insert(t.name);
      }
      if (have.empty()) continue;
      any = true;
      std::erase_if(left, [&](const std::string& name) { return !have.contains(name); });
    }
  };
  for (const File& file : sources.files()) {
    if (file.kind == Kind::training) look(file.root);
  }
  if (sources.launch()) look(sources.launch()->options);
  return any ? left : std::set<std::string>{};
}

// A word of the script's name: dpo.py, run_grpo.py, train-sft.
std::optional<std::string> by_script(const Sources& sources) {
  if (!sources.launch()) return std::nullopt;
  std::string script = sources.launch()->script;
  script = script.substr(script.rfind('/') + 1);
  std::string word;
  std::vector<std::string> words;
  for (const char c : script + "_") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(c));
    } else {
      words.push_back(std::exchange(word, {}));
    }
  }
  for (const Trainer& t : trainers()) {
    if (std::ranges::find(words, t.name) != words.end()) return t.name;
  }
  return std::nullopt;
}

std::optional<std::string> by_loss(const Sources& sources) {
  const auto loss = sources.training("loss_type");
  if (!loss) return std::nullopt;
  const Json& first = loss->value.is_array() && !loss->value.empty() ? loss->value.front() : loss->value;
  for (const Trainer& t : trainers()) {
    if (first.is_string() && std::ranges::find(t.losses, first.get<std::string>()) != t.losses.end()) return t.name;
  }
  return std::nullopt;
}

void choose(const Sources& sources, Setting& setting) {
  const std::set<std::string> keys = by_keys(sources);
  const auto script = by_script(sources);
  const auto loss = by_loss(sources);
  std::string chosen;
  if (script) {
    chosen = *script;
    setting.assume(fmt::format("the trainer is TRL's for {}", chosen),
                   fmt::format("the script's name, {}", in_quotes(sources.launch()->script)));
  } else if (keys == std::set<std::string>{"grpo", "rloo"}) {
    chosen = "grpo";
    setting.assume("the trainer is TRL's for grpo", "the configuration's keys, which only grpo and rloo have");
  } else if (keys.size() == 1) {
    chosen = *keys.begin();
    setting.assume(fmt::format("the trainer is TRL's for {}", chosen), "the configuration's keys, which no other has");
  } else if (loss && (keys.empty() || keys.contains(*loss))) {
    chosen = *loss;
    setting.assume(fmt::format("the trainer is TRL's for {}", chosen), "its loss_type, which no other has");
  } else if (keys.empty()) {
    setting.trainer = "transformers";
    setting.assume("transformers' Trainer, which runs the model's own loss inside the wrapper's forward",
                   "no file names a trainer of TRL or an option that only one of them has");
    return;
  } else {
    setting.no_case.push_back(
        fmt::format("the options fit more than one trainer of TRL ({}): pass the launch command, or add loss_type",
                    fmt::join(keys, ", ")));
    return;
  }
  if (chosen == "rloo" || chosen == "reward") {
    setting.no_case.push_back(fmt::format("no case stands for TRL's {} trainer", chosen));
    return;
  }
  setting.trainer = chosen;
}

}  // namespace

std::vector<std::string> classes_of(const Setting& setting) {
  for (const Trainer& t : trainers()) {
    if (setting.trainer == t.name) return {t.config, "TrainingArguments", "ModelConfig", "ScriptArguments"};
  }
  return {"TrainingArguments"};
}

void merge_trainer(const Sources& sources, Setting& setting) {
  if (sources.launch() && !sources.launch()->files.empty() && sources.first(Kind::training) == nullptr) {
    setting.no_case.push_back(fmt::format("{} names {}: pass that file too", sources.launch_file(),
                                          in_quotes(sources.launch()->files.front())));
  }
  choose(sources, setting);
  setting.axes.loss = setting.trainer == "dpo"    ? Loss::dpo
                      : setting.trainer == "kto"  ? Loss::kto
                      : setting.trainer == "grpo" ? Loss::grpo
                                                  : Loss::sft;
  const auto loss = sources.training("loss_type");
  if (const auto liger = sources.training({"use_liger_kernel", "use_liger_loss", "use_liger"});
      liger && truthy(liger->value)) {
    setting.fused = "liger";
  } else if (!liger && sources.trains()) {
    if (const auto otherwise = default_of(classes_of(setting), "use_liger_kernel")) {
      setting.assume("no Liger kernel", otherwise->source);
    }
  }
  if (setting.trainer == "sft" && loss && loss->value == "chunked_nll") {
    if (setting.fused == "liger") {
      setting.find(FindingKind::refused,
                   "loss_type chunked_nll and use_liger_kernel exclude each other: SFTTrainer raises ValueError before "
                   "training (trl 1.6.0 to 1.14.2, trl/trainer/sft_trainer.py)",
                   {loss->where});
    }
    setting.fused = "chunked";
  }
  const std::string measured = setting.trainer == "dpo"    ? "sigmoid"
                               : setting.trainer == "kto"  ? "kto"
                               : setting.trainer == "grpo" ? "grpo"
                                                           : "";
  if (!measured.empty() && loss && loss->value != measured && loss->value != Json::array({measured})) {
    setting.assume(fmt::format("loss_type {} takes the way of {}",
                               in_quotes(loss->value.dump(-1, ' ', false, Json::error_handler_t::replace)), measured),
                   fmt::format("the measured cells compute {}; who reads the head where does not depend on the formula",
                               measured));
  }
}

}  // namespace regather::check
