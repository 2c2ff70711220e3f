// The error classes of Entrain and the check for our own bugs.
//
// Class          Situation                                     Python        Exit code
// InvalidInput   the caller can fix it (path, content, value)  ValueError    2
// SystemFailure  the system failed (file, device, peer)        RuntimeError  3
// InternalError  our bug (ENTRAIN_INVARIANT)                   RuntimeError  1
// NothingFits    a search finds nothing within its limits      RuntimeError  4
//
// If "no" is one of the results that a caller expects, it is not an error: an empty optional or a
// result with a reason.
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

// The input is valid, but nothing that was tried meets its limits. The message names the limit,
// where it applies, and by how much the nearest candidate missed it.
class NothingFits : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
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
