// Converts a command's exceptions to the program's exit code, with the message on standard error.
#pragma once

#include <functional>

namespace entrain::cli {

// Returns  the result of `command`, or the code of command.h for its exception.
int exit_code_of(const std::function<int()>& command);

}  // namespace entrain::cli
