#include "base/random.h"

#include <cmath>
#include <numbers>

namespace regather {
namespace {
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15ULL;
}  // namespace

Random::Random(uint64_t seed, uint64_t stream) : state_(mix(seed + kGamma) ^ mix(stream * kGamma + 1)) {}

uint64_t Random::next() { return mix(state_ += kGamma); }

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

int64_t Random::below(int64_t bound) { return static_cast<int64_t>(next() % static_cast<uint64_t>(bound)); }

}  // namespace regather
