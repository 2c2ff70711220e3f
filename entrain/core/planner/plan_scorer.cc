#include "entrain/core/planner/plan_scorer.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/memory.h"
#include "entrain/core/planner/plan_score.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

void check_name(const char* what,
                const std::string& name,
                const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
    throw InvalidInput(
        fmt::format("plan search: unknown {} '{}'{}", what, name, suggestion(name, allowed)));
  }
}

// Checks the request on the way.
SpaceOptions space_options(const PlanSearchRequest& request) {
  ENTRAIN_INVARIANT(request.model != nullptr && request.profile != nullptr &&
                        request.cluster != nullptr && request.most_candidates > 0,
                    "a search for plans needs a model, a profile and a cluster");
  check_name("policy", request.policy, policy_names());
  check_name("schedule", request.schedule, schedule_names());
  if (request.batches.empty()) {
    throw InvalidInput("plan search: no global batch given; at least one is needed");
  }
  for (const std::vector<SampleWork>& batch : request.batches) {
    if (batch.size() != request.batches.front().size()) {
      throw InvalidInput(
          fmt::format("plan search: global batches of {} and {} samples; all have to "
                      "be of one size",
                      request.batches.front().size(),
                      batch.size()));
    }
  }
  SpaceOptions options = request.space;
  options.global_batch = static_cast<int>(request.batches.front().size());
  options.colocated_stages = request.schedule == "dip";
  if (request.policy == "entrain" && !options.microbatches.empty()) {
    options.microbatches.resize(1);
  }
  return options;
}

// Of a device; 0 = no limit.
std::int64_t usable_memory(const PlanSearchRequest& request) {
  const std::int64_t memory = request.cluster->memory_bytes;
  return memory == 0 ? 0 : std::max<std::int64_t>(1, memory - request.reserve_bytes);
}

FigureOptions figure_options(const PlanSearchRequest& request) {
  return {splits_backward(request.schedule), request.limits.chunks};
}

// "lane 3 (vision 3, audio 3)"
std::string describe_lane(const Plan& plan, std::size_t lane) {
  std::vector<std::string> stages;
  for (const StageRef& ref : plan.lanes[lane]) {
    stages.push_back(
        fmt::format("{} {}", plan.modules[static_cast<std::size_t>(ref.module)].name, ref.stage));
  }
  return fmt::format("lane {} ({})", lane, join(stages));
}

}  // namespace

std::int64_t total_ns(const PlanCandidate& candidate) {
  return std::accumulate(candidate.steps.begin(), candidate.steps.end(), std::int64_t{0});
}

PlanScorer::PlanScorer(const PlanSearchRequest& request)
    : request_(request),
      space_(*request.model,
             *request.cluster,
             cluster_degrees(*request.model, *request.profile, *request.cluster),
             space_options(request)),
      bounds_({request.model,
               request.profile,
               &request.batches,
               &space_,
               usable_memory(request),
               request.state,
               figure_options(request)}) {}

std::int64_t PlanScorer::num_batches() const {
  return static_cast<std::int64_t>(request_.batches.size());
}

PlanCandidate PlanScorer::make_candidate(const PlanConfig& config) const {
  const std::vector<std::vector<LayerRange>> stages = bounds_.cut(config);
  ENTRAIN_INVARIANT(!stages.empty(), "a configuration that memory forbids");
  PlanCandidate result;
  result.config = config;
  Plan& plan = result.plan;
  plan.replicas = config.replicas;
  plan.num_slots = config.num_slots;
  plan.policy = request_.policy;
  plan.schedule = request_.schedule;
  plan.limits = request_.limits;
  for (std::size_t module = 0; module < stages.size(); ++module) {
    ModulePlan& part = plan.modules.emplace_back();
    part.name = module_name(*request_.model, static_cast<int>(module));
    part.tensor_parallel = config.modules[module].degrees.tensor_parallel;
    part.context_parallel = config.modules[module].degrees.context_parallel;
    part.stages = stages[module];
  }
  plan.lanes = lane_stages(config);
  validate(plan, *request_.model, "plan search");
  result.bound_ns = bounds_.bound(config).ns / num_batches();
  result.lane_work_ns = bounds_.lane_work_ns(config, stages);
  for (std::int64_t& work : result.lane_work_ns) {
    work /= num_batches();
  }
  const std::vector<LaneState> states = lane_states(*request_.model, plan, request_.state);
  for (const LaneState& state : states) {
    result.lane_state_bytes.push_back(state.total_bytes());
  }
  const ActivationRoom room =
      activation_room(states, request_.cluster->memory_bytes, request_.reserve_bytes);
  plan.limits.lane_bytes = room.lane_bytes;
  if (!room.fits()) {
    const LaneShortage& worst = *std::max_element(room.short_lanes.begin(),
                                                  room.short_lanes.end(),
                                                  [](const LaneShortage& a, const LaneShortage& b) {
                                                    return a.missing_bytes < b.missing_bytes;
                                                  });
    const auto lane = static_cast<std::size_t>(worst.lane);
    result.state = CandidateState::kNoFit;
    result.reason = fmt::format(
        "{} holds {} of parameters, gradients and optimizer states, {} more than a device has",
        describe_lane(plan, lane),
        format_bytes(result.lane_state_bytes[lane]),
        format_bytes(worst.missing_bytes));
  }
  return result;
}

StepCosts PlanScorer::costs_of(const Plan& plan, std::size_t batch) const {
  return step_costs(*request_.model,
                    plan,
                    cluster_profile(*request_.profile, *request_.cluster, plan.replicas),
                    request_.batches[batch]);
}

void PlanScorer::simulate(PlanCandidate& candidate, std::int64_t stop_at) {
  std::vector<std::vector<LayerRange>> stages;
  for (const ModulePlan& module : candidate.plan.modules) {
    stages.push_back(module.stages);
  }
  std::vector<std::int64_t> rest(request_.batches.size() + 1, 0);  // [batch] bounds from it on
  for (std::size_t batch = request_.batches.size(); batch-- > 0;) {
    rest[batch] = rest[batch + 1] + bounds_.batch_bound(candidate.config, stages, batch);
  }
  Plan plan = candidate.plan;
  plan.limits.evaluations = request_.score_evaluations;
  std::int64_t done = 0;
  for (std::size_t batch = 0; batch < request_.batches.size(); ++batch) {
    if (done + rest[batch] >= stop_at) {
      candidate.state = CandidateState::kStopped;
      break;
    }
    if (request_.progress) {
      request_.progress(simulated_steps_);
    }
    ++simulated_steps_;
    const StepScore score = score_step(plan,
                                       costs_of(plan, batch),
                                       request_.first_step + static_cast<std::int64_t>(batch),
                                       request_.seed);
    candidate.lane_peak_bytes.resize(score.lane_peak_bytes.size(), 0);
    for (std::size_t lane = 0; lane < score.lane_peak_bytes.size(); ++lane) {
      candidate.lane_peak_bytes[lane] =
          std::max(candidate.lane_peak_bytes[lane], score.lane_peak_bytes[lane]);
    }
    if (!score.fits()) {
      candidate.state = CandidateState::kNoFit;
      candidate.reason = fmt::format("batch {}: {}", batch, score.reason);
      return;
    }
    candidate.steps.push_back(score.ns);
    done += score.ns;
  }
  candidate.mean_ns = (done + rest[candidate.steps.size()]) / num_batches();
}

}  // namespace entrain
