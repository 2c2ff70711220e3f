#include "entrain/cli/plan_study.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/cost/runnable.h"
#include "entrain/core/planner/recompute_levels.h"
#include "entrain/core/report/plan_page.h"
#include "entrain/core/spec/cost_origin.h"

#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

Json candidate_json(const PlanCandidate& candidate, const ModelSpec& model) {
  return {{"plan", describe(candidate, model)},
          {"schedule", candidate.plan.schedule},
          {"step_s", static_cast<double>(candidate.mean_ns) * 1e-9},
          {"lower_bound_s", static_cast<double>(candidate.bound_ns) * 1e-9},
          {"recomputed_layers", recomputed_layers(candidate.plan)},
          {"stopped", candidate.state == CandidateState::kStopped},
          {"set_aside", candidate.state == CandidateState::kSetAside}};
}

}  // namespace

PlanStudy load_plan_study(const StudyInputs& inputs, bool for_study) {
  PlanStudy result{open_study(inputs), for_study, ""};
  if (for_study || result.study.table.has_value()) {
    return result;
  }
  result.left_out = keep_runnable(result.study.profile);
  const auto unread = std::count_if(
      result.study.samples.begin(), result.study.samples.end(), [&](const SampleSizes& sample) {
        return !engine_reads(result.study.model, sample);
      });
  if (unread > 0) {
    print_warnings({concat(counted(unread, "sample"),
                           " of '",
                           inputs.index,
                           "' with video, which `entrain train` does not read")});
  }
  return result;
}

StepScore mean_step(const Study& study, Plan plan, std::int64_t steps) {
  StepScore mean;
  steps = study.given.empty() ? steps : std::min(steps, study.num_given());
  for (std::int64_t step = 0; step < steps && mean.fits(); ++step) {
    const StepCosts costs = batch_costs(study, plan, draw_batch(study, step));
    StepScore one = score_step(plan, costs, step, study.inputs.seed);
    mean.ns += one.ns;
    mean.reason = std::move(one.reason);
  }
  mean.ns /= std::max<std::int64_t>(1, steps);
  return mean;
}

std::string faster_schedule(const Study& study,
                            Plan plan,
                            std::int64_t best_ns,
                            std::int64_t steps) {
  if (plan.schedule == "entrain" || plan.policy != "entrain") {
    return "";
  }
  const std::string schedule = std::exchange(plan.schedule, "entrain");
  const StepScore other = mean_step(study, std::move(plan), steps);
  return !other.fits() || other.ns >= best_ns
             ? ""
             : fmt::format(
                   "under the schedule entrain instead of {} the same plan's step would take {} "
                   "({:+.1f} %): --schedule entrain plans for that\n",
                   schedule,
                   format_duration(std::chrono::nanoseconds{other.ns}),
                   100 * (static_cast<double>(other.ns) / static_cast<double>(best_ns) - 1));
}

// The first lines of a page.
std::string heading(const PlanStudy& input) {
  return input.study.note() + "\n" +
         (input.left_out.empty() ? ""
                                 : "left out, since `entrain train` does not run it: " +
                                       input.left_out + " (--for-study plans with it)\n");
}

Json plan_json(const PlanStudy& input, const Plan& plan) {
  return with_origin(to_json(plan), input.study.origin);
}

Json splits_json(const LaneSplitResult& result) {
  Json splits = Json::array();
  for (const LaneSplit& split : result.splits) {
    std::vector<int> lanes;
    std::vector<int> virtual_stages;
    for (const ModuleShape& module : split.shape.modules) {
      lanes.push_back(module.stages);
      virtual_stages.push_back(module.virtual_stages);
    }
    splits.push_back({{"lanes", lanes},
                      {"virtual_stages", virtual_stages},
                      {"schedule", split.plan.schedule},
                      {"step_s", static_cast<double>(split.mean_ns) * 1e-9},
                      {"lower_bound_s", static_cast<double>(split.bound_ns) * 1e-9},
                      {"peak_bytes", split.peak_bytes},
                      {"reason", split.reason}});
  }
  return splits;
}

Json result_json(const PlanSearchResult& result, const PlanStudy& input) {
  const ModelSpec& model = input.study.model;
  Json report = {{"fits", result.fits()},
                 {"reason", result.reason},
                 {"note", input.study.note()},
                 {"left_out", input.left_out},
                 {"complete", result.complete},
                 {"left_bound_s", static_cast<double>(result.left_bound_ns) * 1e-9},
                 {"lower_bound_s", static_cast<double>(result.lower_bound_ns) * 1e-9},
                 {"shapes", result.shapes},
                 {"configurations", result.configurations},
                 {"simulated_steps", result.simulated_steps},
                 {"further_batches", result.further_batches}};
  report["set_aside_for_memory"] = Json::array();
  for (const PlanCandidate& candidate : result.no_fit) {
    if (candidate.further_step >= 0) {
      report["set_aside_for_memory"].push_back({{"plan", describe(candidate, model)},
                                                {"step", candidate.further_step},
                                                {"missing_bytes", candidate.missing_bytes},
                                                {"reason", candidate.reason}});
    }
  }
  report["candidates"] = Json::array();
  for (const std::vector<PlanCandidate>* list :
       {&result.plans, &result.stopped, &result.set_aside}) {
    for (const PlanCandidate& candidate : *list) {
      report["candidates"].push_back(candidate_json(candidate, model));
    }
  }
  if (result.fits()) {
    report["plan"] = plan_json(input, result.best().plan);
  }
  return report;
}

Json neighbours_json(const std::vector<PlanNeighbour>& neighbours, const ModelSpec& model) {
  Json list = Json::array();
  for (const PlanNeighbour& neighbour : neighbours) {
    Json entry = {{"change", neighbour.change},
                  {"plan", describe(neighbour.config, model)},
                  {"reason", neighbour.reason}};
    if (neighbour.fits()) {
      entry["step_s"] = static_cast<double>(neighbour.candidate->mean_ns) * 1e-9;
    }
    list.push_back(entry);
  }
  return list;
}

}  // namespace entrain::cli
