// entrain assign: one step's assignment as JSON.
#include <iostream>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/cli/command.h"
#include "entrain/cli/study.h"

namespace entrain::cli {
namespace {

struct Options {
  StudyOptions study;
  std::string plan;
  std::string policy = "entrain";
  std::string output;
  std::int64_t step = 0;
  bool json = false;
};

int run(const Options& options) {
  const Study study = load_study(options.study);
  const Plan plan = read_plan(options.plan, study.model);
  const std::string policy = parse_names(options.policy, policy_names(), "--policy").front();
  const StudyBatch batch = draw_batch(study, options.step);
  const StepCosts costs = step_costs(study.model, plan, study.profile, batch.work);
  AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  request.step = options.step;
  request.seed = options.study.seed;
  const StepAssignment assignment = assign(policy, request);
  validate_assignment(assignment, plan, costs);
  const Json document = to_json(assignment, study.model, batch.samples);
  if (!options.output.empty()) {
    write_file(options.output, document.dump(1) + "\n");
  }
  if (options.json || options.output.empty()) {
    print_json(document);
    return 0;
  }
  std::cout << policy << ": step time " << assignment.stats.makespan_s << " s, lower bound "
            << assignment.stats.lower_bound_s << " s, assigned in " << assignment.stats.assign_ms
            << " ms, written to " << options.output << "\n";
  if (study.with_replacement) {
    std::cout << "The index holds fewer than four batches: drawn with replacement.\n";
  }
  return 0;
}

}  // namespace

void add_assign_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app,
                  "assign",
                  "Assigns one step's global batch to replicas and slots.",
                  "entrain assign --index index.csv --model model.toml --plan plan.json "
                  "--global-batch 512 --policy entrain -o assignment.json");
  add_study_options(*command, options->study);
  command->add_option("--plan", options->plan, "plan JSON of `entrain plan`")->required();
  command->add_option("--policy", options->policy, "one of: " + join(policy_names()))
      ->default_val("entrain");
  command->add_option("--step", options->step, "which step's batch")->default_val(0);
  command->add_option("--output,-o", options->output, "assignment JSON to write");
  command->add_flag("--json", options->json, "print the assignment as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
