#include "entrain/core/base/errors.h"

#include <fmt/format.h>

namespace entrain {

void fail_invariant(const char* condition, const std::string& message, const char* file, int line) {
  throw InternalError(
      fmt::format("internal error: {} ({} is false, {}:{})", message, condition, file, line));
}

}  // namespace entrain
