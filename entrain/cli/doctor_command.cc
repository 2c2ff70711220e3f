// entrain doctor: lines up the dumps of a run that failed and names the culprit.
#include <iostream>
#include <memory>

#include "entrain/core/report/doctor.h"

#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

struct Options {
  std::string run_folder;
  bool json = false;
};

int run(const Options& options) {
  const Diagnosis diagnosis = diagnose(read_dumps(options.run_folder));
  if (options.json) {
    print_json(to_json(diagnosis));
  } else {
    std::cout << to_text(diagnosis);
  }
  return diagnosis.verdict == Verdict::kNone ? kExitNo : 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app,
      "doctor",
      "Says which rank broke a run, from the dumps in its folder (dumps/rank-N.json): who failed\n"
      "first, who died, who was stuck, and what every rank was waiting for. Exit code 4 where it\n"
      "cannot be told.",
      "entrain doctor runs/demo");
  command->add_option("run", options->run_folder, "run folder")->required();
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
