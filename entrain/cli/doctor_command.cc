// entrain doctor: lines up the dumps of a run that failed and names the culprit.
#include <memory>

#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/report/doctor.h"

#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

struct DoctorFlags {
  std::string run_folder;
  bool json = false;
};

int run(const DoctorFlags& options) {
  const std::filesystem::path folder = find_dumps(options.run_folder);
  const Diagnosis diagnosis = diagnose(read_dumps(folder));
  if (options.json) {
    Json document = to_json(diagnosis);
    document["dumps"] = folder.string();
    print_json(document);
  } else {
    print_text(concat(to_text(diagnosis), "\nfrom ", folder.string(), "\n"));
  }
  return diagnosis.verdict == Verdict::kNone ? kExitNo : 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<DoctorFlags>();
  CLI::App* command = add_command(
      app,
      "doctor",
      "Finds the rank that broke a run, from the dumps in its folder (dumps/rank-N.json): which\n"
      "failed first, which died or was stuck, and what every rank was waiting for. A run that was\n"
      "started again after a failure keeps the dumps of the last five in dumps/failure-N; the\n"
      "newest is read if the run itself has none. Exit code 4 if the rank cannot be determined.",
      "entrain doctor runs/demo\n"
      "An earlier failure: entrain doctor runs/demo/dumps/failure-2");
  command->add_option("run", options->run_folder, "run folder, or a folder of dumps")->required();
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
