#include "model/safetensors_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace regather::model {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : origin_(path.string()) {
  // Without O_NONBLOCK opening a pipe would wait for its writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw UsageError(fmt::format("{}: {}", origin_, std::strerror(errno)));
  try {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      throw UsageError(fmt::format("{}: not a regular file", origin_));
    }
    const auto size = static_cast<uint64_t>(status.st_size);
    std::string head(std::min<uint64_t>(size, 8), '\0');
    read_at(0, std::as_writable_bytes(std::span(head)));
    head.resize(8 + header_length(head, size, origin_));
    read_at(0, std::as_writable_bytes(std::span(head)));
    header_ = parse_header(head, size, origin_);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : origin_(std::move(other.origin_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      header_(std::move(other.header_)) {}

void SafetensorsFile::read(const StoredTensor& tensor, std::span<std::byte> out) const {
  REGATHER_CHECK(out.size() == tensor.end - tensor.begin, "model", "{}: {} bytes to read into {}", origin_,
                 tensor.end - tensor.begin, out.size());
  read_at(header_.data_begin + tensor.begin, out);
}

void SafetensorsFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw UsageError(fmt::format("{}: {} at byte {}", origin_, std::strerror(errno), offset));
    if (got == 0) throw UsageError(fmt::format("{}: ends at byte {}, {} bytes early", origin_, offset, out.size()));
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

}  // namespace regather::model
