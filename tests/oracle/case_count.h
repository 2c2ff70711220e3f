// How many random cases a test draws under a sanitizer.
#pragma once

namespace entrain::oracle {

#ifdef ENTRAIN_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// All of them; a fifth where a sanitizer makes each up to ten times as slow. What is right is then
// checked by the build without one, among whose cases these are; the sanitizer looks for what any
// case touches.
constexpr int case_count(int cases) {
  return kSanitized ? cases / 5 : cases;
}

// How many of these cases must have met something: half of what a fifth would have in the mean.
constexpr int met_count(int cases) {
  return kSanitized ? cases / 10 : cases;
}

}  // namespace entrain::oracle
