// entrain explain: one step in words.
#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/explain.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/schedule/torch_csv.h"
#include "entrain/core/step/step.h"
#include "entrain/core/study/cases.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

struct ExplainFlags {
  StudyInputs study;
  PlanOptions plan;
  std::string policy = "entrain";
  std::string schedule;
  std::int64_t step = -1;  // that of the assignment or the sample, else 0
  std::string assignment;
  std::string torch_order;
  std::string sample;
  int replica = -1;
  int slot = -1;
  int stories = 3;
  bool json = false;
};

std::int64_t step_to_explain(const ExplainFlags& options, const Study& study) {
  if (options.step >= 0) {
    return options.step;
  }
  if (!options.assignment.empty()) {
    return step_of_assignment(read_json_file(options.assignment), options.assignment);
  }
  return options.sample.empty() ? 0 : step_of_sample(study, options.sample);
}

std::vector<std::vector<Operation>> read_order(const std::string& file, const Plan& plan) {
  const std::string text = read_file(file);
  try {
    return orders_from_torch_csv(text, plan);
  } catch (const InvalidInput& error) {
    throw InvalidInput(concat("--torch-order ", file, ": ", error.what()));
  }
}

// Nanoseconds of the policy's step without memory limits; 0 where the plan has none, or where the
// policy does the same with them.
std::int64_t unlimited_step(const std::string& policy,
                            const StudyStep& step,
                            const Study& study,
                            std::int64_t step_index,
                            const SimulatedStep& limited) {
  if (step.plan.limits.bytes_per_lane == 0 && step.plan.limits.lane_bytes.empty()) {
    return 0;
  }
  StudyStep unlimited = step;
  unlimited.plan.limits.bytes_per_lane = 0;
  unlimited.plan.limits.lane_bytes.clear();
  const SimulatedStep simulated =
      simulate_step(policy, assign_request(unlimited, study, step_index), {.prove = false});
  const std::int64_t time = simulated.timeline.makespan.count();
  return time == limited.timeline.makespan.count() ? 0 : time;
}

int run(const ExplainFlags& options) {
  const Study study = open_study(options.study, options.plan);
  const std::string policy = parse_name(options.policy, policy_names(), "--policy");
  Plan plan = make_plan(options.plan, study);
  if (!options.schedule.empty()) {
    plan.schedule = parse_name(options.schedule, schedule_names(), "--schedule");
  }
  const std::int64_t step_index = step_to_explain(options, study);
  const StudyStep step = make_step(study, plan, parse_memory_rule(options.plan.memory), step_index);
  const BatchNames names = names_of(study, step.batch);
  constexpr StepOptions kAsked{.prove_limits = false, .events = true, .bound = true};
  StepAssignment assignment =
      options.assignment.empty()
          ? assign(policy, assign_request(step, study, step_index))
          : assignment_from_json(read_json_file(options.assignment), names, options.assignment);
  if (assignment.policy.empty()) {
    assignment.policy = std::string(kGivenPolicy);
  }
  const SimulatedStep simulated =
      options.torch_order.empty()
          ? simulate_step(std::move(assignment), step.plan, step.costs, kAsked)
          : simulate_orders(std::move(assignment),
                            step.plan,
                            step.costs,
                            {read_order(options.torch_order, step.plan)},
                            kAsked);
  ExplainRequest request;
  request.plan = &step.plan;
  request.costs = &step.costs;
  request.step = &simulated;
  request.names = &names;
  request.replica = options.replica;
  request.slot = options.slot;
  request.stories = options.stories;
  if (options.assignment.empty() && options.torch_order.empty()) {
    request.unlimited_ns = unlimited_step(policy, step, study, step_index, simulated);
  }
  if (!options.sample.empty()) {
    request.sample =
        place_of_sample(step.batch.ids, options.sample, concat(" of step ", step_index));
  }
  const Explanation explanation = explain(request);
  if (options.json) {
    print_json(to_json(explanation, request));
  } else {
    const bool found = options.step < 0 && !options.sample.empty() && options.assignment.empty();
    print_text(concat(
        study.note(),
        "\n",
        found ? concat("step ", step_index, " is the first with the sample\n") : std::string(),
        to_string(explanation, request)));
  }
  return 0;
}

}  // namespace

void add_explain_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExplainFlags>();
  CLI::App* command = add_command(
      app,
      "explain",
      "Shows for one step the slot of every sample, what waits for what, and what another choice "
      "would have cost.",
      "entrain explain --index index.csv --model model.toml --plan plan.json --global-batch 512 "
      "--step 3 --sample train/000123");
  add_study_options(*command, options->study);
  add_given_batches(*command, options->study);
  add_hold(*command, options->study);
  add_plan_options(*command, options->plan);
  command->add_option("--policy", options->policy, "one of: " + join(policy_names()))
      ->capture_default_str();
  command->add_option(
      "--assignment",
      options->assignment,
      "assignment JSON for this step, of `entrain assign` or your own, instead of --policy");
  command->add_option(
      "--torch-order",
      options->torch_order,
      "compute order of torch.distributed.pipelining (compute_only CSV), instead of "
      "--schedule");
  command->add_option(
      "--schedule", options->schedule, "one of (default: the plan's): " + join(schedule_names()));
  command
      ->add_option("--step",
                   options->step,
                   "which step's batch (default: the assignment's, the first that holds --sample, "
                   "or 0)")
      ->transform(whole(0, kMostSteps));
  command->add_option("--sample", options->sample, "the story of this sample");
  command->add_option("--replica", options->replica, "which replica (default: the slowest)")
      ->transform(whole(0, kMostReplicas - 1));
  command->add_option("--slot", options->slot, "show this slot and its samples")
      ->transform(whole(0, kMostSlots - 1));
  command->add_option("--stories", options->stories, "how many of the heaviest samples to show")
      ->transform(whole(0, kMostSamples))
      ->capture_default_str();
  command->add_flag("--json", options->json, "print it as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
