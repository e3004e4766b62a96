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

// Writes a line at the end of a file that was opened to append to, whole or not at all: what a full disk took of it is
// cut off again. False with errno set when it cannot.
bool append_line(int file, std::string_view line);

// Cuts off what follows the last end of line, which a writer that was killed has left; false with errno set when it
// cannot.
bool cut_torn_line(int file);

}  // namespace regather
