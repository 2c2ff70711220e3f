// entrain._core: the torch-free core for Python, bound with nanobind. entrain/python/entrain makes
// results and samplers of it.
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <nlohmann/json.hpp>

#include "entrain/core/balance/balance.h"
#include "entrain/core/balance/rivals.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/output.h"
#include "entrain/core/base/partial_files.h"
#include "entrain/core/base/python_process.h"
#include "entrain/core/base/version.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/hold.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/token_cache.h"
#include "entrain/core/families/family.h"
#include "entrain/core/study/audit.h"

#include "entrain/cli/command.h"
#include "entrain/cli/program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using entrain::BalanceRequest;
using Work = std::vector<std::vector<std::int64_t>>;  // [sample][module] ns

int run(const std::vector<std::string>& arguments) {
  entrain::remove_partial_files_on_signals();
  return entrain::cli::exit_code_of([&] { return entrain::cli::run_program(arguments); });
}

std::tuple<int, std::string> call(const std::vector<std::string>& arguments) {
  std::ostringstream text;
  const entrain::cli::OutputTo redirected(text);
  const int code = entrain::cli::run_program(arguments);
  return {code, text.str()};
}

std::string read_model(const std::string& path) {
  return entrain::json_text(to_json(entrain::load_model(path)));
}

std::int64_t check_index(const std::string& path) {
  return std::ssize(entrain::read_index(path).samples);
}

void copy_index(const std::string& source, const std::string& target, bool force) {
  entrain::Outputs outputs({source}, force);
  outputs.open("save", target, entrain::OutputKind::kIndex);
  const std::filesystem::path tokens = entrain::token_cache_path(source);
  if (std::filesystem::exists(tokens)) {
    outputs.open("save", entrain::token_cache_path(target), entrain::OutputKind::kTokens);
  }
  entrain::copy_index(source, target);
}

std::vector<BalanceRequest::Sample> samples_of(const Work& work,
                                               const std::vector<std::int64_t>& tokens,
                                               const std::vector<std::int64_t>& bytes) {
  if (tokens.size() != work.size() || (!bytes.empty() && bytes.size() != work.size())) {
    throw entrain::InvalidInput("work, tokens and bytes are of different lengths");
  }
  std::vector<BalanceRequest::Sample> samples(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (work[i].size() != work.front().size() || work[i].size() > samples[i].work.size()) {
      throw entrain::InvalidInput("work: 1 to 4 modules are allowed, the same for every sample");
    }
    std::copy(work[i].begin(), work[i].end(), samples[i].work.begin());
    samples[i].tokens = tokens[i];
    samples[i].bytes = bytes.empty() ? 0 : bytes[i];
  }
  return samples;
}

// What of a request is the same in every step.
struct Settings {
  BalanceRequest request;
  bool limit_as_drawn = false;
};

Settings settings_of(const std::string& layout,
                     int ranks,
                     int microbatches,
                     bool padded,
                     std::int64_t max_tokens,
                     std::int64_t max_bytes,
                     bool limit_as_drawn,
                     const std::vector<int>& everywhere,
                     int search_steps,
                     const std::vector<std::string>& module_names) {
  Settings result;
  result.request.layout = layout == "ddp" ? entrain::Layout::kDdp : entrain::Layout::kFsdp;
  result.request.ranks = ranks;
  result.request.microbatches = microbatches;
  result.request.padded = padded;
  result.request.max_tokens = max_tokens;
  result.request.max_bytes = max_bytes;
  result.request.search_steps = search_steps;
  for (const int module : everywhere) {
    result.request.everywhere.at(static_cast<std::size_t>(module)) = true;
  }
  for (std::size_t module = 0; module < module_names.size(); ++module) {
    result.request.module_names.at(module) = module_names[module];
  }
  result.limit_as_drawn = limit_as_drawn;
  return result;
}

// All samples of a data set, so that a step is no more than numbers of samples for Python.
class Samples {
 public:
  Samples(const Work& work,
          const std::vector<std::int64_t>& tokens,
          const std::vector<std::int64_t>& bytes)
      : samples_(samples_of(work, tokens, bytes)),
        num_modules_(work.empty() ? 1 : static_cast<int>(work.front().size())) {}

  using Step = std::vector<std::vector<std::vector<int>>>;  // [microbatch][rank] samples

  // The step, its time and all work / ranks in ns.
  [[nodiscard]] std::tuple<Step, std::int64_t, std::int64_t> balance(const Settings& settings,
                                                                     const std::vector<int>& rows,
                                                                     std::uint64_t seed) const {
    BalanceRequest request = settings.request;
    request.num_modules = num_modules_;
    request.seed = seed;
    for (const int row : rows) {
      request.samples.push_back(samples_.at(static_cast<std::size_t>(row)));
    }
    entrain::check_request(request);
    if (settings.limit_as_drawn) {
      limit_as(drawn_cells(request), request);
    }
    const entrain::CellOf cells = entrain::balance(request);
    Step step(static_cast<std::size_t>(request.microbatches),
              std::vector<std::vector<int>>(static_cast<std::size_t>(request.ranks)));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      step[static_cast<std::size_t>(cells[i] / request.ranks)]
          [static_cast<std::size_t>(cells[i] % request.ranks)]
              .push_back(rows[i]);
    }
    return {std::move(step), step_time(request, cells), perfect_step_time(request)};
  }

 private:
  std::vector<BalanceRequest::Sample> samples_;
  int num_modules_;
};

std::vector<int> hold_oversized(const std::vector<std::int64_t>& weights, int steps) {
  std::vector<int> places(weights.size());
  std::iota(places.begin(), places.end(), 0);
  return entrain::hold_oversized(places, steps, weights);
}

}  // namespace

NB_MODULE(_core, module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  module.attr("VERSION") = std::string(entrain::version());
  module.def("run", &run, "arguments"_a, Release(), "Runs `entrain` as a program; its exit code.");
  module.def("call",
             &call,
             "arguments"_a,
             Release(),
             "Runs `entrain`; its exit code and what it printed.\n\nRaises ValueError for input "
             "to correct, RuntimeError where nothing fits or a file fails.");
  module.def("read_model",
             &read_model,
             "path"_a,
             Release(),
             "The model description of a TOML file, a Hugging Face folder or a config.json, as "
             "JSON.");
  module.def(
      "check_index",
      &check_index,
      "path"_a,
      Release(),
      "The number of samples of an index.\n\nRaises ValueError for one that cannot be read.");
  module.def("copy_index",
             &copy_index,
             "source"_a,
             "target"_a,
             "force"_a,
             Release(),
             "Writes an index to another file.\n\nRaises ValueError for a file of another kind at "
             "`target` without `force`.");
  module.def("epoch_rows",
             &entrain::epoch_rows,
             "num_samples"_a,
             "seed"_a,
             "epoch"_a,
             Release(),
             "The drawn order of an epoch, that of `entrain export`.");
  module.def("hold_oversized",
             &hold_oversized,
             "weights"_a,
             "steps"_a,
             Release(),
             "The places that the samples of consecutive global batches were drawn at, with "
             "oversized ones gathered as a run's data.hold does.");
  module.def("step_seed",
             &entrain::step_seed,
             "seed"_a,
             "epoch"_a,
             "step"_a,
             "The seed of balance() in a step, that of `entrain export`.");
  nb::class_<Settings>(
      module, "Settings", "What of a request to balance is the same in every step.")
      .def(nb::new_(&settings_of),
           nb::kw_only(),
           "layout"_a,
           "ranks"_a,
           "microbatches"_a,
           "padded"_a,
           "max_tokens"_a,
           "max_bytes"_a,
           "limit_as_drawn"_a,
           "everywhere"_a,
           "search_steps"_a,
           "module_names"_a);
  nb::class_<Samples>(module, "Samples", "Costs of all samples: work [sample][module] in ns.")
      .def(nb::init<const Work&,
                    const std::vector<std::int64_t>&,
                    const std::vector<std::int64_t>&>(),
           "work"_a,
           "tokens"_a,
           "bytes"_a)
      .def("balance",
           &Samples::balance,
           "settings"_a,
           "rows"_a,
           "seed"_a,
           Release(),
           "([microbatch][rank] samples, the step in ns, all work / ranks in ns); as balance() of "
           "core/balance/balance.h.");
  module.def(
      "set_python",
      [](const std::string& python, const std::string& packages) {
        entrain::set_python_program({python, packages});
      },
      "python"_a,
      "packages"_a,
      "The interpreter and the folder of packages that tokenize and read Parquet.");
}
