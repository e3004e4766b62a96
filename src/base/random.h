// Counter-based random numbers: the same numbers on every machine, thread and transport, from (seed, stream, counter).
#pragma once

#include <cstdint>

namespace regather {

// splitmix64 over (seed, stream); each call advances by one.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0);
  uint64_t next();
  double uniform();              // [0, 1)
  double normal();               // mean 0, standard deviation 1 (Box-Muller)
  int64_t below(int64_t bound);  // [0, bound)

 private:
  uint64_t state_;
};

}  // namespace regather
