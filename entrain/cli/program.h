// All commands as one program, without a process of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "entrain/cli/train_command.h"

namespace entrain::cli {

// A command of the program with torch that is missing in this build, or help with all commands.
bool is_for_the_engine(std::string_view word);

// Runs the command that `arguments` name ("audit", "index.csv", …); help and versions too. Text
// goes to out() of command.h.
//
// `groups`: of `train`, where ranks are processes.
//
// Returns  the exit code of command.h.
// Throws   InvalidInput for arguments that no command takes, and as the command does.
int run_program(std::vector<std::string> arguments, const ProcessGroups& groups = {});

}  // namespace entrain::cli
