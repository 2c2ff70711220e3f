// entrain report: runs, simulations and indices as one page.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/output.h"
#include "entrain/core/base/text.h"
#include "entrain/core/families/family.h"
#include "entrain/core/report/report_page.h"
#include "entrain/core/report/report_views.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> inputs;
  std::string model;
  std::vector<std::string> ignore_modality;
  std::string output;
  bool force = false;
  bool json = false;
};

// What --model and --ignore-modality are of.
void check_indices(const ReportFlags& options, const Json& views) {
  if (std::any_of(views.begin(), views.end(), is_of_index)) {
    if (options.model.empty() && !options.ignore_modality.empty()) {
      throw InvalidInput("--ignore-modality needs --model, whose encoders say what is read");
    }
    return;
  }
  for (const auto& [name, given] :
       {std::pair("--model", !options.model.empty()),
        std::pair("--ignore-modality", !options.ignore_modality.empty())}) {
    if (given) {
      throw InvalidInput(concat(
          name, " is for indices, and none is given: a run or a simulation has its own model"));
    }
  }
}

// Beside runs: whose data an index is not.
void add_other_data(const std::vector<std::string>& inputs, Json& views) {
  std::vector<std::filesystem::path> runs;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(runs), [](const auto& input) {
    return std::filesystem::is_directory(input);
  });
  for (Json& view : views) {
    const std::string other =
        is_of_index(view) ? other_data(view.at("name").get<std::string>(), runs) : "";
    if (!other.empty()) {
      view["warnings"].push_back(other + ".");
    }
  }
}

// The page has them, too.
void print_page_warnings(const Json& views) {
  for (const Json& view : views) {
    const auto name = view.at("name").get<std::string>();
    for (const Json& warning : view.at("warnings")) {
      const auto text = warning.get<std::string>();
      print_warnings({(text.find(name) == std::string::npos ? name + ": " : "") + text});
    }
  }
}

int run(const ReportFlags& options) {
  if (options.output.empty() && !options.json) {
    throw InvalidInput(
        "--output: the page to write is needed (or --json, to print what it would hold)");
  }
  std::vector<std::filesystem::path> inputs(options.inputs.begin(), options.inputs.end());
  inputs.emplace_back(options.model);
  Outputs outputs(inputs, options.force);
  const Output page = outputs.open("--output", options.output, OutputKind::kPage);
  const std::optional<ModelSpec> model =
      options.model.empty() ? std::nullopt : std::optional(load_model(options.model));
  Json views = Json::array();
  for (const std::string& input : options.inputs) {
    for (Json& view : views_of(input, model ? &*model : nullptr, options.ignore_modality)) {
      // Of cases that `simulate --json` printed, the name does not say the file.
      const auto name = view.at("name").get<std::string>();
      if (options.inputs.size() > 1 && name.find(input) == std::string::npos) {
        view["name"] = concat(input, ": ", name);
      }
      views.push_back(std::move(view));
    }
  }
  check_indices(options, views);
  add_other_data(options.inputs, views);
  print_page_warnings(views);
  const Json report =
      report_of_views(std::move(views),
                      options.inputs.size() <= 3 ? join(options.inputs)
                                                 : counted(std::ssize(options.inputs), "input"));
  if (page.named()) {
    page.write(report_page(report));
  }
  if (options.json) {
    print_json(report);
  } else {
    std::cerr << "report written to " << options.output << "\n";
  }
  return 0;
}

}  // namespace

void add_report_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ReportFlags>();
  CLI::App* command = add_command(
      app,
      "report",
      "Draws runs and simulations as one page: where the step's time went, losses, memory; of an\n"
      "index how the sizes of its samples are distributed.",
      "entrain report runs/demo -o report.html\n  "
      "entrain report runs/a runs/b -o comparison.html\n  "
      "entrain simulate --json … > cases.json; entrain report cases.json -o cases.html\n  "
      "entrain report runs/demo train.csv val.csv --model model.toml -o both.html");
  command
      ->add_option("inputs",
                   options->inputs,
                   "folders of runs, step.json of one, what `simulate --json` printed, and index "
                   "files (CSV); runs are compared with runs, indices with indices")
      ->required();
  command->add_option("--model,-m",
                      options->model,
                      "of indices: model file (TOML) or Hugging Face folder, for the LLM's tokens");
  add_ignore_modality(*command, options->ignore_modality);
  command->add_option("--output,-o", options->output, "page to write (HTML, one file)");
  add_force(*command, options->force);
  command->add_flag("--json", options->json, "print what the page holds as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
