#include "repro/check/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace regather::check {
namespace {

std::optional<Said> said(const Json& json, const std::string& key, const std::string& file, const std::string& path) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null() || is_unset(*at)) return std::nullopt;
  return Said{*at, fmt::format("{}: {}", file, path)};
}

}  // namespace

Sources::Sources(std::vector<File> files) : files_(std::move(files)) {
  for (const File& file : files_) {
    if (file.kind == Kind::launch) {
      if (launch_) throw UsageError(fmt::format("'{}' is the second launch command; expected one", file.name));
      launch_ = parse_launch(file.name, file.words);
    }
  }
  if (const File* file = first(Kind::deepspeed)) {
    deepspeed_ = &file->root;
    deepspeed_name_ = file->name;
    return;
  }
  for (const File& file : files_) {
    const auto at = file.root.find("deepspeed");
    if (file.kind != Kind::training || at == file.root.end() || !at->is_object()) continue;
    deepspeed_ = &*at;
    deepspeed_name_ = file.name + ": deepspeed";
  }
  if (launch_ && launch_->options.contains("deepspeed") && launch_->options.at("deepspeed").is_object()) {
    deepspeed_ = &launch_->options.at("deepspeed");
    deepspeed_name_ = launch_file() + ": --deepspeed";
  }
}

const File* Sources::first(Kind kind) const {
  const auto at = std::ranges::find(files_, kind, &File::kind);
  return at == files_.end() ? nullptr : &*at;
}

std::string Sources::launch_file() const {
  const File* file = first(Kind::launch);
  return file == nullptr ? std::string() : file->name;
}

bool Sources::trains() const { return first(Kind::training) != nullptr || (launch_ && !launch_->options.empty()); }

std::optional<Said> Sources::training(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    if (!launch_) break;
    if (auto found = said(launch_->options, name, launch_file(), fmt::format("--{}", name))) return found;
  }
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    if (file->kind != Kind::training) continue;
    for (const char* name : names) {
      if (auto found = said(file->root, name, file->name, name)) return found;
    }
  }
  return std::nullopt;
}

std::optional<Said> Sources::accelerate(const char* name, const char* group) const {
  if (launch_ && launch_->launcher != "torchrun" && launch_->launcher != "deepspeed") {
    if (auto found = said(launch_->flags, name, launch_file(), fmt::format("--{}", name))) return found;
  }
  const File* file = first(Kind::accelerate);
  if (file == nullptr) return std::nullopt;
  if (group != nullptr) {
    const auto at = file->root.find(group);
    if (at != file->root.end() && at->is_object()) {
      // accelerate adds the prefix where it is left out.
      const std::string bare = std::string_view(name).starts_with("fsdp_") ? name + 5 : name;
      for (const std::string& key : {std::string(name), bare}) {
        if (auto found = said(*at, key, file->name, fmt::format("{}.{}", group, key))) return found;
      }
    }
    return std::nullopt;
  }
  return said(file->root, name, file->name, name);
}

std::optional<Said> Sources::deepspeed(std::string_view dotted) const {
  if (deepspeed_ == nullptr) return std::nullopt;
  const Json* value = at_path(*deepspeed_, dotted);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return Said{*value, fmt::format("{}: {}", deepspeed_name_, dotted)};
}

std::optional<Said> Sources::fsdp(const char* name) const {
  const std::string prefixed = fmt::format("fsdp_{}", name);
  const auto within = [&](const Json& json, const std::string& file, const std::string& path) -> std::optional<Said> {
    for (const std::string& key : {prefixed, std::string(name)}) {
      if (auto found = said(json, key, file, path + key)) return found;
    }
    return std::nullopt;
  };
  if (const auto config = training("fsdp_config"); config && config->value.is_object()) {
    if (auto found = within(config->value, config->where, "")) return found;
  }
  if (const File* file = first(Kind::fsdp)) {
    if (auto found = within(file->root, file->name, "")) return found;
  }
  return accelerate(prefixed.c_str(), "fsdp_config");
}

bool truthy(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  const std::string text = lower(value);
  return text == "true" || text == "yes" || text == "y" || text == "on" || text == "t" || text == "1";
}

std::optional<int64_t> whole(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 62) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number >= -1e15 && number <= 1e15 && number == static_cast<double>(static_cast<int64_t>(number))) {
      return static_cast<int64_t>(number);
    }
    return std::nullopt;
  }
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    char* rest = nullptr;  // "1e9"
    const double real = std::strtod(text.c_str(), &rest);
    return text.empty() || *rest != '\0' ? std::nullopt : whole(Json(real));
  }
  return number;
}

std::string lower(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_string()) return {};
  std::string text = value.get<std::string>();
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace regather::check
