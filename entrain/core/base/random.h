// Seeded random numbers that are the same on every machine and library.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "entrain/core/base/errors.h"

namespace entrain {

// xoshiro256** seeded by splitmix64. Equal (seed, stream) give equal sequences everywhere;
// different streams of one seed are independent for our purposes. Not for cryptography.
//
// Source  Blackman and Vigna 2018 (public domain reference); golden values in random_test.cc.
class Rng {
 public:
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0);

  std::uint64_t next() {
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

  // Uniform in [0, bound), without bias (rejection). Requires bound >= 1.
  std::uint64_t below(std::uint64_t bound) {
    ENTRAIN_INVARIANT(bound > 0, "random bound must be positive");
    // Values below 2^64 mod bound are drawn again, so that every residue is equally likely. Few are
    // below the bound itself: the others save a division.
    std::uint64_t value = next();
    while (value < bound && value < (0 - bound) % bound) {
      value = next();
    }
    return value % bound;
  }

  // Uniform in [0, 1), 53 random bits.
  double uniform();
  // Standard normal (Box-Muller, one value per call; uses std::log and std::cos, so not bitwise
  // equal across C libraries: for weights and noise, never for decisions).
  double normal();

  // Fisher-Yates from the back.
  template <class T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[static_cast<std::size_t>(below(i))]);
    }
  }

 private:
  std::uint64_t state_[4];
};

}  // namespace entrain
