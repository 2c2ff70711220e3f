// The error classes of Entrain and the check for our own mistakes.
//
// Situation                                      Class           Python         exit code of
// `entrain` the caller can fix it (path, content, value)   InvalidInput    ValueError     2 the
// world failed (file, device, peer)          SystemFailure   RuntimeError   3 our bug InternalError
// RuntimeError   1 A legitimate "no" (nothing fits) is an empty optional or a result with a reason,
// exit code 4.
#pragma once

#include <stdexcept>
#include <string>

namespace entrain {

// A message says what was given, what is allowed, and where.
class InvalidInput : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

class SystemFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_invariant(const char* condition,
                                 const std::string& message,
                                 const char* file,
                                 int line);

}  // namespace entrain

// Always on. `message` is evaluated only on failure.
#define ENTRAIN_INVARIANT(condition, message)                               \
  do {                                                                      \
    if (!(condition)) {                                                     \
      ::entrain::fail_invariant(#condition, (message), __FILE__, __LINE__); \
    }                                                                       \
  } while (false)
