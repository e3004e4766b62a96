// An open safetensors file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "model/safetensors_header.h"

namespace regather::model {

class SafetensorsFile {
 public:
  // Opens the file and checks its whole header. Throws UsageError: absent, not a regular file, or what parse_header
  // says.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;

  const SafetensorsHeader& header() const { return header_; }
  const std::string& origin() const { return origin_; }

  // Copies a tensor's bytes, of which `out` is to have exactly as many. Reads and does not map: a file that shrinks
  // meanwhile is then an error and not a signal. Throws UsageError when the file ends early.
  void read(const StoredTensor& tensor, std::span<std::byte> out) const;

 private:
  void read_at(uint64_t offset, std::span<std::byte> out) const;

  std::string origin_;
  int descriptor_ = -1;
  SafetensorsHeader header_;
};

}  // namespace regather::model
