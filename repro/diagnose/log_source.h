// The bytes of one log: a file, standard input ("-"), either of them gzip.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace regather::repro {

class LogSource {
 public:
  // Throws UsageError when the file cannot be read.
  explicit LogSource(const std::string& path);
  ~LogSource();
  LogSource(const LogSource&) = delete;
  LogSource& operator=(const LogSource&) = delete;

  // Up to `size` bytes, decompressed; 0 at the end. Throws UsageError when reading fails. A gzip stream that is cut or
  // damaged ends there.
  size_t read(char* to, size_t size);
  bool damaged() const;  // the gzip stream ended before its end

 private:
  class Gzip;
  size_t read_file(char* to, size_t size);

  std::string path_;
  int file_ = -1;
  std::string begin_;  // what was read to tell gzip from text
  std::unique_ptr<Gzip> gzip_;
};

}  // namespace regather::repro
