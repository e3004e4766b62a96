// Random numbers of a rank: ranks may be threads of one process, whose default generator they would share.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace regather::autograd {

// The generator that blocks on this thread draw from (dropout). Seeded alike on every rank until seed_rank().
at::Generator& rank_generator();
void seed_rank(uint64_t seed);

// Puts `state` into the rank's generator for a scope, and what was there before back at its end.
class ScopedRandomState {
 public:
  explicit ScopedRandomState(const at::Tensor& state);
  ~ScopedRandomState();
  ScopedRandomState(const ScopedRandomState&) = delete;
  ScopedRandomState& operator=(const ScopedRandomState&) = delete;

 private:
  at::Tensor before_;
};

}  // namespace regather::autograd
