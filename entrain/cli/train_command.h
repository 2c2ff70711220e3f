// `entrain train` where ranks may be processes: what the Python package adds to its own program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "entrain/cli/command.h"

namespace entrain::cli {

// How a run's ranks that are processes reach each other, this one among them.
struct ProcessGroups {
  std::string ranks;  // name of a c10d group; empty: ranks are threads of this process
  // Makes two more groups of all ranks for tensors of GPUs and names them; all ranks call it
  // together, if any does. Empty: it cannot.
  std::function<std::vector<std::string>()> make_for_devices;
  bool restarted = false;  // by the launcher, after an attempt that failed; alike on all ranks
};

// As add_train_command(app, action) where ranks are threads.
void add_train_command(CLI::App& app, Action& action, const ProcessGroups& groups);

}  // namespace entrain::cli
