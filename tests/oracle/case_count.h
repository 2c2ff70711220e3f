// How many random cases a test draws under a sanitizer.
#pragma once

namespace entrain::oracle {

// All of them; a fifth where a sanitizer makes each up to ten times as slow. What is right is then
// checked by the build without one, of which every case is among these; the sanitizer looks for
// what any case touches. The least number of cases that must have met something is scaled alike.
constexpr int case_count(int cases) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return cases / 5;
#else
  return cases;
#endif
}

}  // namespace entrain::oracle
