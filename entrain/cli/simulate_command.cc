// entrain simulate: step time, bound, memory and balance of policies × schedules, without training.
#include <algorithm>
#include <iostream>

#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/report_page.h"
#include "entrain/core/report/report_views.h"
#include "entrain/core/report/step_view.h"
#include "entrain/core/report/table.h"
#include "entrain/core/report/trace.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/schedule/torch_csv.h"
#include "entrain/core/step/step.h"
#include "entrain/core/study/one_sample.h"
#include "entrain/core/study/summary.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

constexpr std::int64_t kDrawnSteps = 3;
constexpr std::size_t kMostViews = 12;  // of a report

struct SimulateFlags {
  StudyInputs study;
  PlanOptions plan;
  PolicyOptions policy;
  std::string assignment;
  int one_sample = 0;
  std::string policies = "sequential,random,lpt-2d,entrain";
  std::string schedules;   // empty: the plan's
  std::int64_t steps = 0;  // 0: see num_steps()
  int threads = 1;
  std::string links = "own";
  std::string trace;
  std::string report;
  std::string torch_csv;
  std::string csv;
  bool force = false;
  bool json = false;
};

// Of the file: its step's batch, which it has to hold.
void take_assignment(const std::string& file, const Study& study, CasesRequest& request) {
  const Json document = read_json_file(file);
  request.first_step = step_of_assignment(document, file);
  request.given =
      assignment_from_json(document, names_of(study, draw_batch(study, request.first_step)), file);
}

// The first step of one case, with its timeline.
struct FirstStep {
  StudyStep step;
  SimulatedStep simulated;
};

FirstStep first_step_of(const SimulateFlags& options,
                        const Study& study,
                        const Plan& plan,
                        const CasesRequest& request,
                        const CaseResult& result) {
  Plan traced = plan;
  traced.schedule = result.schedule;
  traced.num_slots = result.given_slots > 0 ? result.given_slots : plan.num_slots;
  FirstStep first;
  first.step = make_step(study, traced, parse_memory_rule(options.plan.memory), request.first_step);
  constexpr StepOptions kAsked{.prove_limits = false, .events = true, .bound = true};
  first.simulated =
      result.policy == kGivenPolicy
          ? simulate_step(*request.given, first.step.plan, first.step.costs, kAsked)
          : simulate_step(result.policy,
                          assign_request(first.step, study, request.first_step, options.policy),
                          kAsked);
  return first;
}

// Its timeline, and its compute order as torch writes one.
void write_case(const FirstStep& first,
                const CaseResult& result,
                const Output& trace,
                const Output& torch_csv) {
  const SimulatedStep& simulated = first.simulated;
  torch_csv.write([&](std::ostream& out) { out << to_torch_csv(simulated.program); });
  trace.write([&](std::ostream& out) {
    write_trace(out,
                simulated.program,
                simulated.timeline,
                first.step.costs,
                first.step.batch.ids,
                concat(result.policy, " with ", result.schedule));
  });
}

// One view a case whose plan fits, in the order of the rows; `fits` of each.
Json report_of(const SimulateFlags& options,
               const Study& study,
               const Plan& plan,
               const CasesRequest& request,
               const std::vector<CaseResult>& cases,
               const std::vector<CaseSummary>& summaries) {
  std::vector<const CaseResult*> shown;
  for (const CaseResult& result : cases) {
    if (result.steps.front().refused.empty()) {
      shown.push_back(&result);
    }
  }
  const std::size_t drawn = std::min(shown.size(), kMostViews);
  Json views = Json::array();
  for (std::size_t i = 0; i < drawn; ++i) {
    const CaseResult& result = *shown[i];
    const FirstStep first = first_step_of(options, study, plan, request, result);
    StepViewRequest view;
    view.plan = &first.step.plan;
    view.costs = &first.step.costs;
    view.program = &first.simulated.program;
    view.predicted = &first.simulated.timeline;
    view.sample_ids = &first.step.batch.ids;
    view.bound = first.simulated.bound;
    view.step = request.first_step;
    views.push_back(view_of_step(step_view(view, kMostOperations / std::ssize(shown)),
                                 result.policy + " with " + result.schedule));
    views.back()["facts"].push_back({"policy", result.policy});
    const auto summary = std::find_if(summaries.begin(), summaries.end(), [&](const auto& other) {
      return other.policy == result.policy && other.schedule == result.schedule;
    });
    if (request.steps > 1 && summary != summaries.end()) {
      views.back()["facts"].push_back(
          {concat("median of ", request.steps, " steps"), format_seconds(summary->step_s)});
    }
    if (request.steps > 1) {
      views.back()["steps"] = curves_of(result, request.first_step);
    }
    views.back()["plan"] = view_of_plan(to_json(first.step.plan));
  }
  if (drawn < shown.size()) {
    views.front()["warnings"].push_back(
        concat("The first ",
               drawn,
               " of ",
               shown.size(),
               " cases are shown; name fewer policies or schedules."));
  }
  return report_of_views(views,
                         drawn == 1
                             ? views.front()["name"].get<std::string>()
                             : concat(counted(drawn, "case"), ", step ", request.first_step));
}

// Empty if the command line gives the number.
std::vector<int> slots_to_try(const SimulateFlags& options, const Study& study, const Plan& plan) {
  return options.plan.num_slots > 0 ? std::vector<int>()
                                    : slot_candidates(plan, study.inputs.global_batch);
}

// How many the command line asks for; else a few drawn batches, or all given ones.
std::int64_t num_steps(const SimulateFlags& options, const Study& study) {
  const std::int64_t given = study.num_given();
  if (given > 0 && options.steps > given) {
    throw InvalidInput(concat("--steps: ",
                              options.steps,
                              " given; ",
                              options.study.no_repeat ? "--no-repeat" : "--batch",
                              " gives ",
                              counted(given, "batch")));
  }
  if (options.steps > 0) {
    return options.steps;
  }
  return given > 0 ? given : kDrawnSteps;
}

CasesRequest cases_request(const SimulateFlags& options,
                           const Study& study,
                           const Plan& plan,
                           std::int64_t steps) {
  CasesRequest request;
  request.study = &study;
  request.plan = plan;
  request.policies = parse_selection(options.policies, policy_names(), "--policy");
  request.schedules = options.schedules.empty()
                          ? parse_names(plan.schedule, schedule_names(), "--plan: schedule")
                          : parse_selection(options.schedules, schedule_names(), "--schedule");
  request.steps = options.assignment.empty() ? steps : 1;
  request.memory = parse_memory_rule(options.plan.memory);
  request.threads = options.threads;
  request.links = options.links == "node"   ? LinkSharing::kNode
                  : options.links == "lane" ? LinkSharing::kLane
                                            : LinkSharing::kChannel;
  apply(options.policy, request.assign);
  request.slots = slots_to_try(options, study, plan);
  if (!options.assignment.empty()) {
    take_assignment(options.assignment, study, request);
  }
  return request;
}

std::vector<CaseResult> simulate_cases(const SimulateFlags& options, CasesRequest request) {
  Progress progress("simulating", Progress::kShareTotal, ProgressUnit::kShare);
  request.progress = [&progress](double share) { progress.reach_share(share); };
  try {
    return options.one_sample > 0 ? run_one_sample_cases(request, options.one_sample)
                                  : run_cases(request);
  } catch (const InvalidInput& error) {
    throw options.assignment.empty()
        ? error
        : InvalidInput(concat("--assignment ", options.assignment, ": ", error.what()));
  }
}

Json report_json(const SimulateFlags& options,
                 const Study& study,
                 const CasesRequest& request,
                 const std::vector<CaseResult>& cases,
                 const std::vector<CaseSummary>& summaries) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    rows.push_back(to_json(summaries[i], study.module_names()));
    if (summaries[i].has_result()) {
      rows.back()["curves"] = curves_of(cases[i], request.first_step);
    }
  }
  return {{"steps", request.steps},
          {"memory", options.plan.memory},
          {"note", study.note()},
          {"slots_tried", request.slots},
          {"gain", gain_text(summaries)},
          {"with_replacement", study.with_replacement},
          {"rows", rows}};
}

int run(const SimulateFlags& options) {
  if (options.one_sample > 0 &&
      !(options.trace.empty() && options.torch_csv.empty() && options.report.empty())) {
    throw InvalidInput(
        "--trace, --torch-csv and --report show a step of one plan, --one-sample runs many plans");
  }
  if (options.one_sample > 0 && !options.assignment.empty()) {
    throw InvalidInput("--assignment is of one plan, --one-sample runs many plans");
  }
  if (options.links == "node" && options.study.cluster.empty()) {
    throw InvalidInput("--links node needs --cluster, which says what lanes share a node");
  }
  std::vector<std::filesystem::path> inputs = input_files(options.study, options.plan);
  inputs.emplace_back(options.assignment);
  Outputs outputs(inputs, options.force);
  const Output csv = outputs.open("--csv", options.csv, OutputKind::kCases);
  const Output trace = outputs.open("--trace", options.trace, OutputKind::kTrace);
  const Output report = outputs.open("--report", options.report, OutputKind::kPage);
  const Output torch_csv = outputs.open("--torch-csv", options.torch_csv, OutputKind::kTorchOrder);
  const Study study = open_study(options.study, options.plan);
  // Names and numbers are checked before anything takes time.
  const std::int64_t steps = num_steps(options, study);
  parse_selection(options.policies, policy_names(), "--policy");
  if (!options.schedules.empty()) {
    parse_selection(options.schedules, schedule_names(), "--schedule");
  }
  warn_of_window(study, steps, "--steps");
  const Plan plan = make_plan(options.plan, study);
  const CasesRequest request = cases_request(options, study, plan, steps);
  const std::vector<CaseResult> cases = simulate_cases(options, request);
  const std::vector<CaseSummary> summaries = summarise(cases);
  if (csv.named()) {
    csv.write(cases_csv(cases, study.module_names()));
  }
  if (options.json) {
    print_json(report_json(options, study, request, cases, summaries));
  } else {
    print_text(study.note() + "\n" + to_string(summaries, study.module_names(), request.slots) +
               counted(request.steps, "step") +
               "; step time, bound, gap and bubble are medians, memory is the largest\n");
  }
  const auto shown = std::find_if(cases.rbegin(), cases.rend(), [](const CaseResult& result) {
    return result.steps.front().refused.empty();
  });
  if (shown == cases.rend()) {
    std::cerr << "entrain: nothing fits: " << cases.front().steps.front().refused << "\n";
    return kExitNo;
  }
  if (trace.named() || torch_csv.named()) {
    write_case(first_step_of(options, study, plan, request, *shown), *shown, trace, torch_csv);
  }
  if (report.named()) {
    report.write(report_page(report_of(options, study, plan, request, cases, summaries)));
    std::cerr << "report of each row's first step: " << options.report << "\n";
  }
  if (trace.named()) {
    std::cerr << "timeline of " << shown->policy << " with " << shown->schedule
              << ", first step: " << options.trace << " (open in Perfetto or chrome://tracing)\n";
  }
  return 0;
}

}  // namespace

void add_simulate_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<SimulateFlags>();
  CLI::App* command = add_command(
      app,
      "simulate",
      "Predicts the step time of policies and schedules for an index, a model and a plan.",
      "entrain simulate --index index.csv --model model.toml --lanes 4 --replicas 2 "
      "--global-batch 512 --policy all --memory equal --csv cases.csv\n  "
      "entrain simulate --costs costs.csv --plan plan.json --batch ids.txt --policy all");
  add_study_options(*command, options->study);
  add_given_batches(*command, options->study);
  add_hold(*command, options->study);
  add_plan_options(*command, options->plan);
  add_policy_options(*command, options->policy);
  command->add_option("--assignment",
                      options->assignment,
                      "assignment JSON, of `entrain assign` or your own: judged beside the "
                      "policies, on its step, as `given`");
  command
      ->add_option("--one-sample",
                   options->one_sample,
                   "instead of one plan, the plans of so many single samples (DistTrain's "
                   "method): mean step time over the draws")
      ->transform(whole(1, 1000));
  command
      ->add_option(
          "--policy", options->policies, "all, or comma-separated: " + join(policy_names()))
      ->capture_default_str();
  command->add_option("--schedule",
                      options->schedules,
                      "all, or comma-separated (default: the plan's): " + join(schedule_names()));
  command
      ->add_option("--steps",
                   options->steps,
                   "global batches (default: 3 drawn ones, or all of --batch or --no-repeat)")
      ->transform(whole(1, 100'000));
  command
      ->add_option("--threads",
                   options->threads,
                   "cases at a time; figures do not depend on it, assign times excepted")
      ->transform(whole(1, 1024))
      ->capture_default_str();
  command->add_option(
      "--csv", options->csv, "CSV to write: one line per policy, schedule and step");
  command->add_option("--trace", options->trace, "Chrome trace of the last row's first step");
  command->add_option("--report",
                      options->report,
                      "page to write (HTML), with plots: the first step of every row lane by lane, "
                      "step times, causes of the gap, balance, memory (docs/report.md)");
  command->add_option("--torch-csv",
                      options->torch_csv,
                      "compute order of the last row's first step as torch.distributed.pipelining "
                      "reads it (one replica, one group a slot; docs/schedules.md)");
  command
      ->add_option("--links",
                   options->links,
                   "what messages share: own (a link per channel), lane (a link per lane), node (a "
                   "link per node of --cluster beside that)")
      ->check(CLI::IsMember({"own", "lane", "node"}))
      ->capture_default_str();
  add_force(*command, options->force);
  command->add_flag("--json", options->json, "print the rows as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
