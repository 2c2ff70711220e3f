// Seeded random numbers that are the same on every machine and library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace entrain {

// xoshiro256** seeded by splitmix64. Equal (seed, stream) give equal sequences everywhere;
// different streams of one seed are independent for our purposes. Not for cryptography.
//
// Source  Blackman and Vigna 2018 (public domain reference); golden values in random_test.cc.
class Rng {
 public:
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0);

  std::uint64_t next();
  // Uniform in [0, bound), without bias (rejection). Requires bound >= 1.
  std::uint64_t below(std::uint64_t bound);
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
