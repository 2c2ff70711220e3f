// entrain simulate: step time, bound, bubble and balance of policies × schedules, without training.
#include <algorithm>
#include <iostream>
#include <numeric>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"
#include "entrain/core/report/trace.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "entrain/cli/command.h"
#include "entrain/cli/study.h"

namespace entrain::cli {
namespace {

struct Options {
  StudyOptions study;
  std::string plan;
  std::string policies = "sequential,random,lpt-2d,entrain";
  std::string schedules = "1f1b";
  std::int64_t steps = 3;
  std::string trace;
  bool json = false;
};

// Means over steps; peaks are maxima.
struct Row {
  std::string policy;
  std::string schedule;
  double step_s = 0;
  double lower_bound_s = 0;
  double bubble = 0;
  double slots = 0;
  double deferred = 0;
  std::map<std::string, double> cv;
  std::int64_t peak_bytes = 0;
  double assign_ms = 0;
};

void add_step(Row& row, const StepAssignment& assignment, const Timeline& timeline, double share) {
  row.step_s += share * std::chrono::duration<double>(timeline.makespan).count();
  row.lower_bound_s += share * assignment.stats.lower_bound_s;
  row.bubble += share * bubble_fraction(timeline);
  row.assign_ms += share * assignment.stats.assign_ms;
  for (const auto& [module, balance] : assignment.stats.modules) {
    row.cv[module] += share * balance.cv;
  }
  for (const ReplicaAssignment& replica : assignment.replicas) {
    const double part = share / static_cast<double>(assignment.replicas.size());
    row.slots += part * replica.num_slots;
    row.deferred += share * static_cast<double>(deferrals(replica).size());
  }
  for (const auto& lanes : timeline.lanes) {
    for (const LaneUsage& lane : lanes) {
      row.peak_bytes = std::max(row.peak_bytes, lane.peak_bytes);
    }
  }
}

struct Case {
  const Study* study = nullptr;
  Plan plan;
  std::string policy;
};

Row simulate_case(const Case& task, const Options& options, const std::string& trace) {
  Row row;
  row.policy = task.policy;
  row.schedule = task.plan.schedule;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const StudyBatch batch = draw_batch(*task.study, step);
    const StepCosts costs =
        step_costs(task.study->model, task.plan, task.study->profile, batch.work);
    AssignRequest request;
    request.plan = &task.plan;
    request.costs = &costs;
    request.step = step;
    request.seed = options.study.seed;
    const StepAssignment assignment = assign(task.policy, request);
    validate_assignment(assignment, task.plan, costs);
    const Program program = build_program(task.plan, assignment, costs, task.plan.schedule);
    validate_program(program, task.plan, assignment, costs);
    SimulateOptions simulate_options;
    simulate_options.events = step == 0 && !trace.empty();
    const Timeline timeline = simulate(program, costs, simulate_options);
    add_step(row, assignment, timeline, 1.0 / static_cast<double>(options.steps));
    if (simulate_options.events) {
      write_trace(trace, program, timeline, costs, batch.sample_ids, task.policy);
    }
  }
  return row;
}

Json row_json(const Row& row) {
  return {{"policy", row.policy},
          {"schedule", row.schedule},
          {"step_s", row.step_s},
          {"lower_bound_s", row.lower_bound_s},
          {"bubble", row.bubble},
          {"num_slots", row.slots},
          {"deferred", row.deferred},
          {"cv", row.cv},
          {"peak_bytes", row.peak_bytes},
          {"assign_ms", row.assign_ms}};
}

void print_table(const std::vector<Row>& rows, const Study& study) {
  std::vector<std::string> header = {
      "policy", "schedule", "step time", "vs first", "over bound", "bubble", "slots", "deferred"};
  for (const auto& [module, cv] : rows.front().cv) {
    header.push_back("CV " + module);
  }
  header.insert(header.end(), {"peak memory", "assign"});
  Table table(header);
  for (const Row& row : rows) {
    std::vector<std::string> cells = {
        row.policy,
        row.schedule,
        format_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(row.step_s * 1e9))),
        format_fixed(rows.front().step_s / row.step_s, 3) + "x",
        format_fixed(row.step_s / row.lower_bound_s, 3),
        format_fixed(row.bubble, 3),
        format_fixed(row.slots, 1),
        format_fixed(row.deferred, 1)};
    for (const auto& [module, cv] : row.cv) {
      cells.push_back(format_fixed(cv, 3));
    }
    cells.push_back(format_bytes(row.peak_bytes));
    cells.push_back(format_fixed(row.assign_ms, 1) + " ms");
    table.add_row(cells);
  }
  std::cout << table.to_text();
  std::cout
      << "profile: " << study.profile.source << ", " << study.profile.device
      << "; 'over bound' is step time over the lane bound; CV is of forward times per slot.\n";
  if (study.with_replacement) {
    std::cout << "The index holds fewer than four batches: drawn with replacement.\n";
  }
}

int run(const Options& options) {
  const Study study = load_study(options.study);
  Plan plan = read_plan(options.plan, study.model);
  const auto policies = parse_names(options.policies, policy_names(), "--policy");
  const auto schedules = parse_names(options.schedules, schedule_names(), "--schedule");
  std::vector<Row> rows;
  {
    Progress progress("simulating", std::ssize(policies) * std::ssize(schedules));
    for (const std::string& schedule : schedules) {
      for (const std::string& policy : policies) {
        plan.schedule = schedule;
        const bool traced = rows.size() + 1 == policies.size() * schedules.size();
        rows.push_back(
            simulate_case({&study, plan, policy}, options, traced ? options.trace : std::string()));
        progress.advance();
      }
    }
  }
  if (options.json) {
    Json list = Json::array();
    for (const Row& row : rows) {
      list.push_back(row_json(row));
    }
    print_json(
        {{"steps", options.steps}, {"with_replacement", study.with_replacement}, {"rows", list}});
    return 0;
  }
  print_table(rows, study);
  if (!options.trace.empty()) {
    std::cout << "timeline of the last row's first step: " << options.trace
              << " (open in Perfetto or chrome://tracing)\n";
  }
  return 0;
}

}  // namespace

void add_simulate_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app,
      "simulate",
      "Predicts the step time of policies and schedules for an index, a model and a plan.",
      "entrain simulate --index index.csv --model model.toml --plan plan.json --global-batch 512 "
      "--policy sequential,entrain --trace trace.json");
  add_study_options(*command, options->study);
  command->add_option("--plan", options->plan, "plan JSON of `entrain plan`")->required();
  command->add_option("--policy", options->policies, "comma-separated: " + join(policy_names()))
      ->capture_default_str();
  command
      ->add_option("--schedule", options->schedules, "comma-separated: " + join(schedule_names()))
      ->capture_default_str();
  command->add_option("--steps", options->steps, "global batches to draw")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--trace", options->trace, "Chrome trace of the last row's first step");
  command->add_flag("--json", options->json, "print the rows as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
