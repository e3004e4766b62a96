#include "base/pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace regather {

void close_file(int& file) {
  if (file >= 0) ::close(file);
  file = -1;
}

int take_file(int& file) {
  const int taken = file;
  file = -1;
  return taken;
}

Pipe::Pipe() {
  std::array<int, 2> ends{};
  REGATHER_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "worker", "no pipe: {}", std::strerror(errno));
  read = ends[0];
  write = ends[1];
}

Pipe::~Pipe() {
  close_file(read);
  close_file(write);
}

}  // namespace regather
