// Translates exceptions of torch into errors of this project.
#pragma once

#include <exception>
#include <new>
#include <string>

#include <c10/util/Exception.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {

// The message of a torch error without its stack, else what().
inline std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

// Returns  what `call` returns.
// Throws   SystemFailure, without a stack, for a c10::Error or std::bad_alloc from `call`; any
//          other exception unchanged.
template <class Call>
auto without_torch_errors(const Call& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    throw SystemFailure(message_of(error));
  } catch (const std::bad_alloc&) {
    throw SystemFailure("out of memory: the system gives no more");
  }
}

}  // namespace entrain::engine
