#include "entrain/engine/comm/torch_errors.h"

namespace entrain::engine {

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace entrain::engine
