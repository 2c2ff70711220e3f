#include "entrain/core/base/glob.h"

#include <cstddef>

namespace entrain {
namespace {

// The characters of the pattern that stand for one character of text, 0 if that is not among them.
std::size_t fits_one(std::string_view pattern, char character) {
  if (pattern.front() == '?') {
    return 1;
  }
  const std::size_t first = pattern.size() > 1 && pattern[1] == '!' ? 2 : 1;
  // A `]` that is the set's first character is one of it.
  const std::size_t end = pattern.find(']', first + 1);
  if (pattern.front() != '[' || end == std::string_view::npos) {
    return pattern.front() == character ? 1 : 0;
  }
  bool inside = false;
  for (std::size_t i = first; i < end; ++i) {
    const bool range = i + 2 < end && pattern[i + 1] == '-';
    inside = inside || (range ? pattern[i] <= character && character <= pattern[i + 2]
                              : pattern[i] == character);
    i += range ? 2 : 0;
  }
  return inside == (first == 1) ? end + 1 : 0;
}

}  // namespace

bool fits_glob(std::string_view pattern, std::string_view text) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = kNone;  // the last `*`, which is the only one that need be tried again
  std::size_t skipped = 0;   // text up to which that `*` reaches
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      skipped = t;
      continue;
    }
    const std::size_t taken = p < pattern.size() ? fits_one(pattern.substr(p), text[t]) : 0;
    if (taken > 0) {
      p += taken;
      ++t;
    } else if (star != kNone) {
      p = star + 1;
      t = ++skipped;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

}  // namespace entrain
