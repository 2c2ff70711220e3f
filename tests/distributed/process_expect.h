// What checks of ranks that are processes fail with: torchrun shows it and ends the others.
#pragma once

#include <stdexcept>
#include <string>

namespace entrain {

// Throws  std::runtime_error saying `what` where it does not hold.
inline void expect(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error(what);
  }
}

}  // namespace entrain
