#include <fmt/format.h>

#include <algorithm>

#include "repro/check/options.h"
#include "repro/check/setting.h"

namespace regather::check {
namespace {

// The modules that a list, or one string, names.
std::vector<std::string> modules(const std::optional<Said>& said) {
  std::vector<std::string> names;
  if (!said) return names;
  for (const Json& entry : said->value.is_array() ? said->value : Json::array({said->value})) {
    if (entry.is_string()) names.push_back(entry.get<std::string>());
  }
  return names;
}

bool has(const std::vector<std::string>& names, std::initializer_list<std::string_view> wanted) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    return std::ranges::find(wanted, std::string_view(name)) != wanted.end();
  });
}

void merge_adapters(const Sources& sources, Setting& setting) {
  const File* adapter = sources.first(Kind::adapter);
  const auto use = sources.training("use_peft");
  const bool four = [&] {
    const auto bits = sources.training({"load_in_4bit", "load_in_8bit"});
    const auto eight = sources.training("load_in_8bit");
    return (bits && truthy(bits->value)) || (eight && truthy(eight->value));
  }();
  const bool on = adapter != nullptr || (use && truthy(use->value));
  if (!on) {
    if (four) {
      setting.no_case.push_back("the base is quantised, and no file says which adapters are trained on it");
    } else if (const auto rank = sources.training("lora_r"); rank) {
      setting.find(FindingKind::ignored,
                   "lora_r has no effect without use_peft (trl/trainer/utils.py, get_peft_config)", {rank->where});
    }
    return;
  }
  const auto from = [&](const char* key, const char* option) -> std::optional<Said> {
    if (adapter != nullptr && adapter->root.contains(key) && !adapter->root.at(key).is_null()) {
      return Said{adapter->root.at(key), fmt::format("{}: {}", adapter->name, key)};
    }
    return sources.training(option);
  };
  const Json type =
      adapter != nullptr && adapter->root.contains("peft_type") ? adapter->root.at("peft_type") : Json("LORA");
  if (lower(type) != "lora") {
    setting.no_case.push_back(fmt::format("no case stands for adapters of the type {}",
                                          type.is_string() ? in_quotes(type.get<std::string>()) : "that is given"));
    return;
  }
  setting.axes.frozen = four ? Frozen::quantised : Frozen::lora;
  const auto targets = from("target_modules", "lora_target_modules");
  const auto saved = from("modules_to_save", "lora_modules_to_save");
  setting.head_adapted = has(modules(targets), {"lm_head"});
  if (setting.head_adapted) {
    setting.find(FindingKind::outside,
                 "the head itself has an adapter: a loss that reads the head's weight leaves the adapter out "
                 "(adapter_bypassed); no axis of a case",
                 {targets->where});
    if (setting.fused != "none")
      setting.no_case.push_back("no case stands for an adapter on the head under a fused loss");
  }
  if (has(modules(saved), {"lm_head", "embed_tokens"})) {
    setting.no_case.push_back(
        fmt::format("{}: no case stands for adapters beside a trainable head or embedding", saved->where));
  }
  const std::vector<std::string> attention{"k_proj", "o_proj", "q_proj", "v_proj"};
  std::vector<std::string> named = modules(targets);
  std::ranges::sort(named);
  if (named != attention) {
    setting.assume("the adapters stand as adapters on q, k, v and o",
                   targets ? fmt::format("{}: the axis has no others", targets->where)
                           : "no file names their modules; the axis has no others");
  }
  if (setting.trainer == "dpo" || setting.trainer == "kto") {
    setting.axes.reference = Reference::shared;
    setting.assume("the reference is the policy with its adapters off",
                   "TRL's trainers, given adapters and no reference model (trl 1.6.0, trl/trainer/dpo_trainer.py)");
  }
}

void merge_tie(const Sources& sources, Setting& setting) {
  const File* model = sources.first(Kind::model);
  if (model == nullptr) {
    setting.assume("the head is not tied to the embedding", "no config.json of a model is given");
    return;
  }
  const Json* tied = at_path(model->root, "tie_word_embeddings");
  if (tied == nullptr) tied = at_path(model->root, "text_config.tie_word_embeddings");
  if (tied == nullptr || tied->is_null()) {
    const bool by_default = model->root.contains("model_type") && ties_by_default(lower(model->root.at("model_type")));
    if (by_default) setting.axes.head = Head::tied;
    setting.assume(by_default ? "the head is tied to the embedding" : "the head is not tied to the embedding",
                   "the default of the model's configuration class (transformers 5.24.0)");
    return;
  }
  if (truthy(*tied)) setting.axes.head = Head::tied;
}

}  // namespace

void merge_model(const Sources& sources, Setting& setting) {
  merge_adapters(sources, setting);
  merge_tie(sources, setting);
}

}  // namespace regather::check
