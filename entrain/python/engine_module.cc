// entrain._engine: `entrain train` for Python, bound with torch's own pybind11. `python -m entrain`
// calls it; entrain/python/entrain/__main__.py makes the process group before.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "entrain/core/base/version.h"

#include "entrain/cli/exit_code.h"
#include "entrain/cli/train_command.h"

namespace {

int run_program(std::vector<std::string> arguments,
                const std::string& process_group,
                const std::function<std::vector<std::string>()>& make_device_groups,
                bool restarted) {
  using namespace entrain::cli;
  return exit_code_of([&] {
    CLI::App app("Entrain: trains multimodal LLMs with pipeline parallelism and few idle devices.",
                 "entrain");
    app.set_version_flag("--version", "entrain " + std::string(entrain::version()));
    app.require_subcommand(1);
    app.footer("All other commands: the `entrain` program.");
    Action action;
    add_train_command(app, action, ProcessGroups{process_group, make_device_groups, restarted});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : kExitInvalid;
    }
    return action();
  });
}

}  // namespace

PYBIND11_MODULE(_engine, module) {
  module.def("run_program",
             &run_program,
             pybind11::arg("arguments"),
             pybind11::arg("process_group") = "",
             pybind11::arg("make_device_groups") = pybind11::none(),
             pybind11::arg("restarted") = false,
             pybind11::call_guard<pybind11::gil_scoped_release>(),
             "Runs `entrain train`; returns its exit code. `process_group` is the name of the c10d "
             "group whose ranks train together, empty for ranks that are threads; "
             "`make_device_groups` makes two more of them for tensors of GPUs and returns their "
             "names; `restarted`: an attempt of the same launcher failed before.");
}
