// Small JSON files from a folder that somebody else wrote.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace regather::model {

// The text of a file of at most `limit` bytes. Throws UsageError: absent, not a regular file, unreadable, too large.
std::string read_text(const std::filesystem::path& path, size_t limit);

// Parses an object of at most 32 levels. `origin` starts every message. Throws UsageError.
nlohmann::json parse_object(std::string_view text, const std::string& origin);

// A name from a file as it may stand in a message: in single quotes, unprintable bytes as \xNN, cut after 160 bytes.
std::string printable(std::string_view name);

}  // namespace regather::model
