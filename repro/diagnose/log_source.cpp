#include "repro/diagnose/log_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace regather::repro {
namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;

}  // namespace

// One gzip file: streams one after the other, as `cat a.gz b.gz` makes them.
class LogSource::Gzip {
 public:
  Gzip() { open_ = inflateInit2(&stream_, kGzipOnly) == Z_OK; }
  ~Gzip() {
    if (open_) inflateEnd(&stream_);
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  template <class Read>
  size_t read(char* to, size_t size, Read read_more) {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(size, 1 << 30));
    const uInt wanted = stream_.avail_out;
    while (!ended_ && stream_.avail_out == wanted) {
      if (stream_.avail_in == 0) {
        stream_.next_in = reinterpret_cast<Bytef*>(in_.data());
        stream_.avail_in = static_cast<uInt>(read_more(in_.data(), in_.size()));
        if (stream_.avail_in == 0) {
          end(!between_);
          break;
        }
      }
      if (between_ && *stream_.next_in == 0) {  // padding, as tape and block devices leave it
        ++stream_.next_in;
        --stream_.avail_in;
        continue;
      }
      between_ = false;
      const int status = open_ ? inflate(&stream_, Z_NO_FLUSH) : Z_STREAM_ERROR;
      if (status == Z_STREAM_END) {
        between_ = true;
        open_ = inflateReset(&stream_) == Z_OK;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        end(true);
      }
    }
    return wanted - stream_.avail_out;
  }
  bool damaged() const { return damaged_; }

 private:
  void end(bool early) {
    ended_ = true;
    damaged_ = early;
  }

  z_stream stream_{};
  std::array<char, 1 << 16> in_{};
  bool open_ = false;
  bool between_ = false;  // after a whole stream
  bool ended_ = false;
  bool damaged_ = false;
};

LogSource::LogSource(const std::string& path) : path_(path) {
  file_ = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) throw UsageError(fmt::format("log '{}': {}", path, std::strerror(errno)));
  try {
    begin_.resize(2);
    size_t held = 0;
    while (held < begin_.size()) {
      const size_t got = read_file(begin_.data() + held, begin_.size() - held);
      if (got == 0) break;
      held += got;
    }
    begin_.resize(held);
  } catch (...) {
    if (file_ != STDIN_FILENO) ::close(file_);
    throw;
  }
  if (begin_ == "\x1f\x8b") gzip_ = std::make_unique<Gzip>();
}

LogSource::~LogSource() {
  if (file_ > STDIN_FILENO) ::close(file_);
}

size_t LogSource::read(char* to, size_t size) {
  const auto raw = [&](char* out, size_t room) {
    if (begin_.empty()) return read_file(out, room);
    const size_t count = std::min(room, begin_.size());
    std::memcpy(out, begin_.data(), count);
    begin_.erase(0, count);
    return count;
  };
  return gzip_ ? gzip_->read(to, size, raw) : raw(to, size);
}

bool LogSource::damaged() const { return gzip_ && gzip_->damaged(); }

size_t LogSource::read_file(char* to, size_t size) {
  for (;;) {
    const ssize_t got = ::read(file_, to, size);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) throw UsageError(fmt::format("log '{}': {}", path_, std::strerror(errno)));
  }
}

}  // namespace regather::repro
