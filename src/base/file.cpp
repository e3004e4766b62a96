#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace regather {

std::string read_file(const std::string& path, size_t limit) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw UsageError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  std::string text;
  char buffer[65536];
  ssize_t got = 0;
  while (text.size() <= limit) {
    got = ::read(file, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  const int error = errno;
  ::close(file);
  if (got < 0) throw UsageError(fmt::format("cannot read '{}': {}", path, std::strerror(error)));
  if (text.size() > limit) throw UsageError(fmt::format("'{}' holds more than {} bytes, the limit here", path, limit));
  return text;
}

void replace_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  REGATHER_CHECK(file >= 0, "file", "cannot write '{}': {}", temporary, std::strerror(errno));
  // A character device (a test's /dev/full) cannot be synchronised and says EINVAL.
  const bool written = write_all(file, text) && (::fsync(file) == 0 || errno == EINVAL);
  const int error = errno;
  const bool closed = ::close(file) == 0;
  if (!written || !closed || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int why = written ? errno : error;
    ::unlink(temporary.c_str());
    throw Error("file", fmt::format("cannot write '{}': {}", path, std::strerror(why)), __FILE__, __LINE__);
  }
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    text.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

bool append_line(int file, std::string_view line) {
  struct stat before {};
  if (::fstat(file, &before) != 0) return false;
  if (write_all(file, std::string(line) + "\n")) return true;
  const int error = errno;
  // A device has no length to go back to.
  static_cast<void>(!::ftruncate(file, before.st_size));
  errno = error;
  return false;
}

bool cut_torn_line(int file) {
  struct stat now {};
  if (::fstat(file, &now) != 0) return false;
  std::array<char, 4096> block;
  off_t whole = now.st_size;  // all before it is known to hold what follows the last end of line
  while (whole > 0) {
    const off_t begin = std::max<off_t>(0, whole - static_cast<off_t>(block.size()));
    const ssize_t got = ::pread(file, block.data(), static_cast<size_t>(whole - begin), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got != whole - begin) return false;
    const size_t end = std::string_view(block.data(), static_cast<size_t>(got)).rfind('\n');
    if (end != std::string_view::npos) {
      whole = begin + static_cast<off_t>(end) + 1;
      break;
    }
    whole = begin;
  }
  return whole == now.st_size || ::ftruncate(file, whole) == 0;
}

}  // namespace regather
