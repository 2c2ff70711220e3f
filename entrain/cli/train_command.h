// `entrain train` with ranks that are processes: the Python package's addition.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "entrain/cli/command.h"

namespace entrain::cli {

// How a run's ranks that are processes communicate, including this one.
struct ProcessGroups {
  std::string ranks;  // name of a c10d group; empty: ranks are threads of this process
  // Makes two more groups of all ranks for tensors of GPUs and names them; called by all ranks
  // together, or by none. Empty: not supported.
  std::function<std::vector<std::string>()> make_for_devices;
  bool restarted = false;  // by the launcher after a failure; the same on all ranks
};

// As the commands of command.h.
void add_train_command(CLI::App& app, Action& action, const ProcessGroups& groups);

}  // namespace entrain::cli
