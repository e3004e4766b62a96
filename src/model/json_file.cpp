#include "model/json_file.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"

namespace regather::model {
namespace {
constexpr int kDeepest = 32;
constexpr size_t kLongestName = 160;
}  // namespace

std::string read_text(const std::filesystem::path& path, size_t limit) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw UsageError(fmt::format("{}: no such file, or not a regular one", path.string()));
  }
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > limit) {
    throw UsageError(fmt::format("{}: {} bytes; at most {} are read", path.string(), error ? 0 : size, limit));
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    throw UsageError(fmt::format("{}: cannot read its {} bytes", path.string(), size));
  }
  return text;
}

nlohmann::json parse_object(std::string_view text, const std::string& origin) {
  const auto bounded = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json&) {
    const bool opens =
        event == nlohmann::json::parse_event_t::object_start || event == nlohmann::json::parse_event_t::array_start;
    if (opens && depth >= kDeepest) throw UsageError(fmt::format("{}: JSON deeper than {} levels", origin, kDeepest));
    return true;
  };
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text.begin(), text.end(), bounded);
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("{}: not JSON: {}", origin, error.what()));
  }
  if (!json.is_object()) throw UsageError(fmt::format("{}: a JSON {}; expected an object", origin, json.type_name()));
  return json;
}

std::string printable(std::string_view name) {
  std::string out = "'";
  for (const char c : name.substr(0, kLongestName)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out + (name.size() > kLongestName ? "'..." : "'");
}

}  // namespace regather::model
