#include "repro/check/file.h"

#include <fmt/ranges.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "repro/check/options.h"
#include "repro/check/shell.h"

namespace regather::check {
namespace {

constexpr std::array kKinds{"DeepSpeed configuration", "accelerate configuration", "training configuration",
                            "FSDP configuration",      "adapter configuration",    "model configuration",
                            "launch command",          "package versions"};

void check_text(const std::string& file, std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    throw UsageError(fmt::format("'{}' holds a zero byte; expected text in UTF-8", file));
  }
  try {
    Json(std::string(text)).dump();  // refuses what is no UTF-8
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("'{}' is no UTF-8; expected a configuration in UTF-8", file));
  }
}

// `pip freeze`: most lines are name==version.
std::optional<Json> read_packages(std::string_view text) {
  static const RE2 pinned(R"(([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([0-9][A-Za-z0-9.+!_-]*)\s*(?:[;#\\].*)?)");
  Json packages = Json::object();
  size_t lines = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    ++lines;
    std::string name;
    std::string version;
    if (line.size() > 400 || !RE2::FullMatch(re2::StringPiece(line.data(), line.size()), pinned, &name, &version))
      continue;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return c == '-' ? '_' : std::tolower(c); });
    packages[name] = version;
  }
  if (packages.empty() || 2 * packages.size() < lines) return std::nullopt;
  return packages;
}

std::string without_prefix(const std::string& key) { return key.starts_with("fsdp_") ? key.substr(5) : key; }

size_t known(const Json& root, const Names& names) {
  size_t count = 0;
  for (const auto& [key, value] : root.items()) count += is_among(names, key) ? 1 : 0;
  return count;
}

std::optional<Kind> kind_of(const Json& root) {
  const auto has = [&](const char* key) { return root.contains(key); };
  const auto holds = [&](const char* key) { return has(key) && root.at(key).is_object(); };
  if (has("distributed_type") || has("compute_environment")) return Kind::accelerate;
  if (has("peft_type") || (has("lora_alpha") && has("r"))) return Kind::adapter;
  if (has("architectures") || (has("model_type") && (has("hidden_size") || holds("text_config")))) return Kind::model;
  if (holds("zero_optimization") || has("train_micro_batch_size_per_gpu")) return Kind::deepspeed;
  if (has("train_batch_size") && (holds("fp16") || holds("bf16") || holds("optimizer"))) return Kind::deepspeed;
  if (holds("deepspeed_config") || (holds("fsdp_config") && has("num_processes"))) return Kind::accelerate;
  const auto fsdp = [&](const auto& entry) { return is_among(fsdp_names(), without_prefix(entry.key())); };
  size_t of_fsdp = 0;
  for (auto at = root.begin(); at != root.end(); ++at) of_fsdp += fsdp(at) ? 1 : 0;
  const size_t of_training = known(root, training_names());
  if (of_fsdp > of_training && 2 * of_fsdp > root.size()) return Kind::fsdp;
  // A script's own dataclasses may add keys of theirs.
  if (of_training > 0 && 3 * of_training >= root.size()) return Kind::training;
  if (2 * known(root, deepspeed_names()) > root.size()) return Kind::deepspeed;
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& name, const Json& root) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : root.items()) {
    if (keys.size() < 5) keys.push_back(in_quotes(key));
  }
  throw UsageError(
      fmt::format("'{}' is none of the files that this command knows (its keys: {}); expected a DeepSpeed, accelerate, "
                  "training, FSDP, adapter or model configuration, a launch command, or the output of pip freeze",
                  name, keys.empty() ? "none" : fmt::format("{}", fmt::join(keys, ", "))));
}

}  // namespace

const char* name(Kind kind) { return kKinds.at(static_cast<size_t>(kind)); }

File parse_file(const std::string& name, std::string_view text) {
  if (text.size() > kLargestFile) {
    throw UsageError(fmt::format("'{}' holds more than {} bytes, the limit here", name, kLargestFile));
  }
  check_text(name, text);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) throw UsageError(fmt::format("'{}' is empty; expected a configuration", name));

  File file{.name = name, .root = Json::object(), .words = {}, .repeated = {}};
  const bool json = text[first] == '{' || text[first] == '[';
  if (!json) {
    if (auto packages = read_packages(text)) {
      file.kind = Kind::packages;
      file.root = std::move(*packages);
      return file;
    }
    if (auto words = find_launch(name, text)) {
      file.kind = Kind::launch;
      file.words = std::move(*words);
      return file;
    }
  }
  Tree tree = json ? parse_json(name, text) : parse_yaml(name, text);
  if (!tree.root.is_object()) {
    throw UsageError(fmt::format("'{}' is a {}, not a mapping; expected a configuration", name, tree.root.type_name()));
  }
  const auto kind = kind_of(tree.root);
  if (!kind) refuse(name, tree.root);
  file.kind = *kind;
  file.root = std::move(tree.root);
  file.repeated = std::move(tree.repeated);
  return file;
}

}  // namespace regather::check
