// entrain assign: one step's assignment as JSON.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/step/step.h"
#include "entrain/core/study/cases.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

struct AssignFlags {
  StudyInputs study;
  PlanOptions plan;
  PolicyOptions policy;
  std::string policies = "entrain";
  std::string schedule;
  std::string output;
  std::int64_t step = 0;
  bool force = false;
  bool json = false;
};

constexpr StepOptions kAsked{.prove_limits = false, .bound = true, .balance = true};

// What one row of the comparison holds.
struct Row {
  StepAssignment assignment;
  bool own_slots = false;       // the policy chose how many
  std::int64_t peak_bytes = 0;  // of the fullest lane
  std::int64_t over_bytes = 0;  // by how much a lane exceeds its limit
};

// What the table shows only where there is something of it.
struct Shown {
  bool chunks = false;
  bool over = false;
};

std::vector<std::string> cells_of(const Row& row, const Shown& shown) {
  const StepAssignment& assignment = row.assignment;
  std::vector<int> slots;
  std::int64_t deferred = 0;
  std::int64_t chunks = 0;
  for (const ReplicaAssignment& replica : assignment.replicas) {
    slots.push_back(replica.num_slots);
    deferred += std::ssize(deferrals(replica));
    chunks += num_chunks(replica);
  }
  std::vector<std::string> cells = {assignment.policy,
                                    format_seconds(assignment.stats.makespan_s),
                                    format_seconds(assignment.stats.lower_bound_s),
                                    format_fixed(100 * assignment.stats.gap, 1) + " %",
                                    format_range(slots) + (row.own_slots ? " own" : ""),
                                    std::to_string(deferred)};
  if (shown.chunks) {
    cells.push_back(std::to_string(chunks));
  }
  cells.push_back(format_bytes(row.peak_bytes));
  if (shown.over) {
    cells.push_back(row.over_bytes > 0 ? format_bytes(row.over_bytes) : "-");
  }
  for (const auto& [module, balance] : assignment.stats.modules) {
    cells.push_back(format_fixed(balance.cv, 3));
    cells.push_back(format_fixed(1e3 * balance.std_s, 3));
  }
  cells.push_back(format_fixed(assignment.stats.assign_ms, 1) + " ms");
  return cells;
}

std::string summary_table(const std::vector<Row>& rows, bool chunks) {
  const bool over =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.over_bytes > 0; });
  std::vector<std::string> header = {"policy", "step time", "bound", "gap", "K", "deferred"};
  if (chunks) {
    header.emplace_back("chunks");
  }
  header.emplace_back("peak memory");
  if (over) {
    header.emplace_back("over limit by");
  }
  for (const auto& [module, balance] : rows.front().assignment.stats.modules) {
    header.push_back(module + " CV");
    header.push_back(module + " std ms");
  }
  header.emplace_back("assign");
  Table table(header);
  for (const Row& row : rows) {
    table.add_row(cells_of(row, {chunks, over}));
  }
  return table.to_text();
}

// Compared policies that do not choose their number of slots run with their best, unless the
// command line gives their number. A single policy runs with the plan's.
std::vector<int> slots_to_try(const AssignFlags& options,
                              const Study& study,
                              const Plan& plan,
                              std::size_t policies) {
  return policies == 1 || options.plan.num_slots > 0
             ? std::vector<int>()
             : slot_candidates(plan, study.inputs.global_batch);
}

int best_slots_of(const std::string& policy,
                  const StudyStep& step,
                  const Study& study,
                  const std::vector<int>& slots,
                  const AssignFlags& options) {
  std::vector<SlotTrial> trials;
  for (const int num_slots : slots) {
    Plan plan = step.plan;
    plan.num_slots = num_slots;
    AssignRequest request = assign_request(step, study, options.step, options.policy);
    request.plan = &plan;
    trials.push_back(try_slots(policy, request));
  }
  return best_slots(trials);
}

// Assigns by every policy; those for which nothing fits are named on standard error, and where no
// table will show it, those that exceed the memory limit.
std::vector<Row> assign_all(const std::vector<std::string>& policies,
                            StudyStep step,
                            const Study& study,
                            const AssignFlags& options) {
  const std::vector<int> slots = slots_to_try(options, study, step.plan, policies.size());
  const int plan_slots = step.plan.num_slots;
  AssignRequest wanted;
  apply(options.policy, wanted);
  std::vector<Row> rows;
  for (const std::string& policy : policies) {
    const bool own = chooses_slots(policy, wanted);
    step.plan.num_slots =
        own || slots.empty() ? plan_slots : best_slots_of(policy, step, study, slots, options);
    try {
      const AssignRequest request = assign_request(step, study, options.step, options.policy);
      const SimulatedStep simulated = simulate_step(policy, request, kAsked);
      const std::vector<std::int64_t>& peaks = simulated.peak_bytes;
      rows.push_back({simulated.assignment, own, *std::max_element(peaks.begin(), peaks.end())});
      if (simulated.excess) {
        rows.back().over_bytes = simulated.excess->over();
      }
      if (simulated.excess && (policies.size() == 1 || options.json)) {
        print_warnings({concat("policy ",
                               policy,
                               " exceeds the memory limit: ",
                               to_string(simulated.program, *simulated.excess))});
      }
    } catch (const NothingFits& no) {
      print_notes({concat("policy ", policy, ": nothing fits: ", no.what())});
    }
  }
  return rows;
}

int run(const AssignFlags& options) {
  const auto policies = parse_selection(options.policies, policy_names(), "--policy");
  if (policies.size() > 1 && !options.output.empty()) {
    throw InvalidInput("--output takes the assignment of one policy; --policy gives several");
  }
  Outputs outputs(input_files(options.study, options.plan), options.force);
  const Output output = outputs.open("--output", options.output, OutputKind::kAssignment);
  const Study study = open_study(options.study, options.plan);
  Plan plan = make_plan(options.plan, study);
  if (!options.schedule.empty()) {
    plan.schedule = parse_name(options.schedule, schedule_names(), "--schedule");
  }
  const StudyStep step =
      make_step(study, plan, parse_memory_rule(options.plan.memory), options.step);
  const std::vector<Row> rows = assign_all(policies, step, study, options);
  if (rows.empty()) {
    return kExitNo;
  }
  const BatchNames names = names_of(study, step.batch);
  if (output.named()) {
    output.write(json_text(to_json(rows.front().assignment, names), 1) + "\n");
  }
  if (options.json) {
    Json documents = Json::array();
    for (const Row& row : rows) {
      documents.push_back(to_json(row.assignment, names));
    }
    print_json(policies.size() == 1 ? documents.front() : documents);
    return 0;
  }
  const std::vector<int> slots = slots_to_try(options, study, step.plan, policies.size());
  std::string tried = concat("the plan's ", step.plan.num_slots);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    tried = i == 0 ? concat("the fastest of ", slots[i]) : concat(tried, ", ", slots[i]);
  }
  print_text(
      concat(study.note(),
             "\n",
             summary_table(rows, step.plan.limits.chunks),
             "step ",
             options.step,
             " under schedule ",
             step.plan.schedule,
             "\nK: slots of a replica, ",
             tried,
             " for every policy that does not choose its own (\"own\")\n"
             "bound: a time that no assignment and no order of this schedule's operations on "
             "these lanes can beat; gap: step time above it\n"
             "deferred: samples whose LLM work runs later; ",
             step.plan.limits.chunks ? "chunks: token ranges; " : "",
             "peak memory: activations of the fullest lane;\nCV, std: of forward times of one "
             "replica's slots, mean of replicas; assign: time taken\n"));
  if (!options.output.empty()) {
    out() << "written to " << options.output << "\n";
  }
  return 0;
}

}  // namespace

void add_assign_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<AssignFlags>();
  CLI::App* command =
      add_command(app,
                  "assign",
                  "Assigns one step's global batch to replicas and slots.",
                  "entrain assign --index index.csv --model model.toml --plan plan.json "
                  "--global-batch 512 --policy entrain -o assignment.json");
  add_study_options(*command, options->study);
  add_given_batches(*command, options->study);
  add_hold(*command, options->study);
  add_plan_options(*command, options->plan);
  add_policy_options(*command, options->policy);
  command
      ->add_option("--policy",
                   options->policies,
                   "one or more, or all, to be compared: " + join(policy_names()))
      ->capture_default_str();
  command->add_option("--schedule",
                      options->schedule,
                      "the one under which step times are simulated (default: the plan's): " +
                          join(schedule_names()));
  command->add_option("--step", options->step, "which step's batch")
      ->transform(whole(0, kMostSteps))
      ->capture_default_str();
  command->add_option("--output,-o", options->output, "assignment JSON to write, of one policy");
  add_force(*command, options->force);
  command->add_flag("--json",
                    options->json,
                    "print the assignment as one line of JSON, a list where there are several");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
