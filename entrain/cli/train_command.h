// `entrain train` where ranks may be processes: what the Python package adds to its own program.
#pragma once

#include <string>

#include "entrain/cli/command.h"

namespace entrain::cli {

// `process_group` names the c10d group of a run whose ranks are processes, this one among them;
// empty: ranks are threads of this process, as in add_train_command(app, action).
void add_train_command(CLI::App& app, Action& action, const std::string& process_group);

}  // namespace entrain::cli
