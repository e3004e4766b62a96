// Whole files in and out, with limits and errors that say which file and why.
#pragma once

#include <string>
#include <string_view>

namespace regather {

// Throws UsageError when the file cannot be read or holds more than `limit` bytes.
std::string read_file(const std::string& path, size_t limit);

// Writes beside `path` and renames, so that `path` never holds a part. Throws Error("file").
void replace_file(const std::string& path, std::string_view text);

// Writes all of `text` to a descriptor, however many calls it takes; false with errno set when it cannot.
bool write_all(int file, std::string_view text);

}  // namespace regather
