// entrain study: the paper's claims put to the test.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <system_error>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/study/paper_folder.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/stop_signals.h"

namespace entrain::cli {
namespace {

struct StudyFlags {
  PaperStudy study;
  std::string manifests;
  std::string models = "configs/models";
  std::string cluster = "configs/clusters/a40-64.toml";
  std::string output;
  bool list = false;
  bool json = false;
};

void check_folder(const std::string& option,
                  const std::string& folder,
                  const std::string& hint = "") {
  std::error_code error;  // one that cannot be looked at is none
  if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
    throw InvalidInput(concat(option, ": '", folder, "' is not a folder", hint));
  }
}

// What is kept is said at the start of a study that goes on, and when a signal ends it.
PaperPage run_shown(const StudyFlags& options, std::int64_t parts) {
  StopMessage stopped;
  stopped.set("\nentrain: stopped before a part was run; run the same command to continue\n");
  Progress progress("studying", parts);
  std::int64_t before = -1;
  const PaperPage page = run_paper_study(options.study, options.output, [&](std::int64_t kept) {
    if (before < 0 && kept > 0) {
      std::cerr << "study: " << kept << " of " << parts << " parts kept\n";
    }
    before = kept;
    progress.reach(kept);
    stopped.set(concat("\nentrain: stopped; ",
                       kept,
                       " of ",
                       parts,
                       " parts kept; run the same command to continue\n"));
  });
  progress.finish();
  return page;
}

int run(StudyFlags options) {
  check_folder("--manifests", options.manifests);
  check_folder("--models",
               options.models,
               "; outside of Entrain's source tree give --models and --cluster, its configs/models "
               "and its configs/clusters/a40-64.toml");
  options.study.manifests = options.manifests;
  options.study.models = options.models;
  options.study.cluster = options.cluster;
  const std::vector<PaperCell> cells = paper_cells(options.study);
  double minutes = 0;
  for (const PaperCell& cell : cells) {
    minutes += cell.minutes;
  }
  const std::string size = concat(cells.size(),
                                  " parts, about ",
                                  std::max(1LL, std::llround(minutes / options.study.threads)),
                                  " minutes");
  if (options.list) {
    print_text(size + "\n");
    for (const PaperCell& cell : cells) {
      print_text(cell.name + "\n");
    }
    return 0;
  }
  if (options.output.empty()) {
    throw InvalidInput(
        "--output: the folder to write is needed (or --list, to name the parts alone)");
  }
  std::cerr << "study: " << size << "; a stopped one goes on where it was\n";
  const PaperPage page = run_shown(options, std::ssize(cells));
  if (options.json) {
    print_json(page.verdicts);
  } else {
    print_text(page.text);
    std::cerr << "tables and drawings: " << options.output << "/README.md\n";
  }
  return 0;
}

}  // namespace

void add_study_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<StudyFlags>();
  CLI::App* study = add_command(app,
                                "study",
                                "Puts published claims to the test in simulation.",
                                "entrain study paper --quick -o paper-quick");
  study->require_subcommand(1);
  CLI::App* command = add_command(
      *study,
      "paper",
      "Tests the Entrain paper's claims: its tables and figures, by its policies and by others.",
      "entrain study paper --quick -o paper-quick\n  "
      "entrain study paper --manifests manifests --threads 2 -o paper");
  command->add_option("--manifests",
                      options->manifests,
                      "folder of size manifests (CSV); without it made-up data alone");
  command->add_option("--models", options->models, "folder of model files")->capture_default_str();
  command->add_option("--cluster", options->cluster, "cluster file of the setting")
      ->capture_default_str();
  command->add_option("--output,-o",
                      options->output,
                      "folder for tables, drawings and the page; a stopped study goes on in it");
  command->add_flag("--quick",
                    options->study.quick,
                    "made-up data, the smaller model and 3 steps: a few minutes");
  command
      ->add_option(
          "--threads", options->study.threads, "cases at a time; figures do not depend on it")
      ->transform(whole(1, 1024))
      ->capture_default_str();
  command->add_flag("--list", options->list, "only name the parts, and say how long they take");
  command->add_flag("--json", options->json, "print the verdicts as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
