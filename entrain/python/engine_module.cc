// entrain._engine: the commands that need torch, for Python, bound with torch's own pybind11.
// `python -m entrain` calls it; entrain/python/entrain/__main__.py makes the process group before.
#include <functional>
#include <string>
#include <vector>

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "entrain/cli/program.h"

namespace {

int run_program(const std::vector<std::string>& arguments,
                const std::string& process_group,
                const std::function<std::vector<std::string>()>& make_device_groups,
                bool restarted) {
  using namespace entrain::cli;
  return exit_code_of([&] {
    return entrain::cli::run_program(arguments,
                                     ProcessGroups{process_group, make_device_groups, restarted});
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
             "Runs the command that `arguments` name; returns its exit code. Of `train`, "
             "`process_group` is the name of the c10d group whose ranks train together, empty for "
             "ranks that are threads; "
             "`make_device_groups` makes two more of them for tensors of GPUs and returns their "
             "names; `restarted`: an attempt of the same launcher failed before.");
}
