// From what a command throws to the exit code of the program, with the message on standard error.
#pragma once

#include <functional>

namespace entrain::cli {

// Returns  what `command` returns, or the code of command.h for what it throws.
int exit_code_of(const std::function<int()>& command);

}  // namespace entrain::cli
