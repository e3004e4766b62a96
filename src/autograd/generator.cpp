#include "autograd/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include "case/fault.h"

namespace regather::autograd {

at::Generator& rank_generator() {
  thread_local at::Generator generator = at::detail::createCPUGenerator(0);
  return generator;
}

void seed_rank(uint64_t seed) { rank_generator().set_current_seed(seed); }

ScopedRandomState::ScopedRandomState(const at::Tensor& state) : before_(rank_generator().get_state()) {
  if (!fault_is(Fault::skip_rng_restore)) rank_generator().set_state(state);
}

ScopedRandomState::~ScopedRandomState() { rank_generator().set_state(before_); }

}  // namespace regather::autograd
