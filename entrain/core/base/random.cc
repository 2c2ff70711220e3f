#include "entrain/core/base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

std::uint64_t splitmix64(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

}  // namespace

Rng::Rng(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t mixed_stream = stream;
  std::uint64_t state = seed ^ (stream == 0 ? 0 : splitmix64(mixed_stream));
  for (std::uint64_t& word : state_) {
    word = splitmix64(state);
  }
}

std::uint64_t Rng::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Rng::below(std::uint64_t bound) {
  ENTRAIN_INVARIANT(bound > 0, "random bound must be positive");
  // Values below 2^64 mod bound are drawn again, so that every residue is equally likely. Few are
  // below the bound itself: the others save a division.
  std::uint64_t value = next();
  while (value < bound && value < (0 - bound) % bound) {
    value = next();
  }
  return value % bound;
}

double Rng::uniform() {
  return static_cast<double>(next() >> 11U) * 0x1.0p-53;
}

double Rng::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace entrain
