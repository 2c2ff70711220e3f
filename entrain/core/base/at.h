// Signed positions as vector indices: positions are counted in signed integers, vectors index with
// std::size_t.
#pragma once

#include <cstddef>
#include <cstdint>

namespace entrain {

// Requires  index >= 0.
constexpr std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace entrain
