// File descriptors that close with their owner.
#pragma once

namespace regather {

// Closes what is open and forgets it.
void close_file(int& file);

// Hands a descriptor over: its owner no longer closes it.
int take_file(int& file);

struct Pipe {
  int read = -1;
  int write = -1;

  Pipe();  // throws Error("worker")
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

}  // namespace regather
