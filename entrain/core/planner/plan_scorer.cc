#include "entrain/core/planner/plan_scorer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/memory.h"
#include "entrain/core/planner/batch_sum.h"
#include "entrain/core/planner/plan_units.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

// Also checks the request.
SpaceOptions space_options(const PlanSearchRequest& request) {
  ENTRAIN_INVARIANT(request.model != nullptr && request.profile != nullptr &&
                        request.cluster != nullptr && request.most_candidates > 0,
                    "a search for plans needs a model, a profile and a cluster");
  check_name("plan search", "policy", request.policy, policy_names());
  check_name("plan search", "schedule", request.schedule, schedule_names());
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
  options.shared_lanes = shared_lanes_of(request.schedule, options.shared_lanes);
  options.virtual_only = request.schedule == "interleaved";
  check_lane_contents(
      *request.model, request.schedule, options.shared_lanes, options.virtual_stages);
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
  return {splits_backward(request.schedule), request.limits.chunks, request.further.largest};
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

// What a plan may take up to this batch without being far behind.
std::int64_t far_behind_ns(std::span<const std::int64_t> rival, std::size_t batch) {
  if (rival.empty()) {
    return kNoStop;
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i <= batch; ++i) {
    sum += rival[i];
  }
  return static_cast<std::int64_t>((1 + kFarBehind) * static_cast<double>(sum));
}

void add_peaks(const StepScore& score, PlanCandidate& candidate) {
  candidate.lane_peak_bytes.resize(score.lane_peak_bytes.size(), 0);
  for (std::size_t lane = 0; lane < score.lane_peak_bytes.size(); ++lane) {
    candidate.lane_peak_bytes[lane] =
        std::max(candidate.lane_peak_bytes[lane], score.lane_peak_bytes[lane]);
  }
}

}  // namespace

std::int64_t total_ns(const PlanCandidate& candidate) {
  return std::accumulate(candidate.steps.begin(), candidate.steps.end(), std::int64_t{0});
}

double time_over(const PlanCandidate& candidate, std::span<const std::int64_t> rival) {
  ENTRAIN_INVARIANT(!candidate.steps.empty() && candidate.steps.size() <= rival.size(),
                    "plans are compared on batches that both have run");
  std::int64_t of_rival = 0;
  for (std::size_t batch = 0; batch < candidate.steps.size(); ++batch) {
    of_rival += rival[batch];
  }
  return static_cast<double>(total_ns(candidate)) /
         static_cast<double>(std::max<std::int64_t>(1, of_rival));
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
               request.recompute != RecomputeRule::kNever,
               request.state,
               figure_options(request)}),
      check_({.model = request.model,
              .profile = request.profile,
              .cluster = request.cluster,
              .further = &request.further,
              .seed = request.seed,
              .on_batch = [this] { report_progress(); },
              .threads = request.threads}) {
  std::vector<SampleWork> sums;
  for (const std::vector<SampleWork>& batch : request.batches) {
    sums.push_back(batch_sum(batch));
    batches_.emplace_back().own() = batch;
  }
  sum_ = {batch_sum(sums)};
}

std::int64_t PlanScorer::num_batches() const {
  return static_cast<std::int64_t>(request_.batches.size());
}

PlanCandidate PlanScorer::make_candidate(const PlanShape& config) const {
  const bool full = request_.recompute == RecomputeRule::kFull;
  const std::vector<std::vector<LayerRange>> stages = bounds_.cut(config, full);
  if (stages.empty()) {
    ENTRAIN_INVARIANT(request_.recompute == RecomputeRule::kAuto,
                      "a configuration that memory forbids");
    PlanCandidate result;
    result.config = config;
    result.state = CandidateState::kNoFit;
    result.reason = "state and the largest sample exceed a device without recomputation";
    return result;
  }
  PlanCandidate result = lay_out(config, stages);
  if (full) {
    set_recompute(full_recompute(result.plan), result.plan);
    count_recompute(result);
  }
  return result;
}

PlanCandidate PlanScorer::lay_out(const PlanShape& config,
                                  const std::vector<std::vector<LayerRange>>& stages) const {
  PlanCandidate result;
  result.config = config;
  Plan& plan = result.plan;
  plan.replicas = config.replicas;
  plan.num_slots = config.num_slots;
  plan.policy = request_.policy;
  plan.schedule = request_.schedule;
  plan.limits = request_.limits;
  plan.shard_optimizer = request_.state.shard_optimizer;
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
  const std::vector<StateBytes> states = lane_states(*request_.model, plan, request_.state);
  for (const StateBytes& state : states) {
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
                    batches_[batch]);
}

PlanCandidate PlanScorer::score(const PlanShape& config,
                                std::int64_t stop_at,
                                std::span<const std::int64_t> rival) {
  PlanCandidate without = make_candidate(config);
  if (without.state != CandidateState::kNoFit) {
    simulate(without, stop_at, rival);
  }
  if (!may_recompute()) {
    return without;
  }
  const bool needed = without.state == CandidateState::kNoFit;
  // Beside a plan that is worth its simulation the levels are compared in full.
  const bool in_full = without.state == CandidateState::kSimulated;
  PlanCandidate with = recompute(config, needed, in_full ? std::span<const std::int64_t>{} : rival);
  if (with.state == CandidateState::kSetAside) {
    const bool both = without.state == CandidateState::kSetAside;
    return both && time_over(without, rival) < time_over(with, rival) ? without : with;
  }
  if (with.state == CandidateState::kSimulated && without.state == CandidateState::kSetAside) {
    return score(config, stop_at);
  }
  without.recompute_tried = needed || with.recompute_tried;
  if (with.state == CandidateState::kNoFit) {
    return needed ? with : without;
  }
  // A stopped plan takes stop_at at least.
  const std::int64_t to_beat =
      without.state == CandidateState::kSimulated ? total_ns(without) : stop_at;
  return needed || total_ns(with) < to_beat ? with : without;
}

PlanShape PlanScorer::with_suited_slots(PlanShape config) const {
  std::int64_t least = bounds_.estimate(config);
  while (request_.policy == "entrain" && config.num_slots > 1) {
    PlanShape half = config;
    half.num_slots /= 2;
    const std::int64_t of_half = bounds_.estimate(half);
    if (of_half >= least) {
      break;
    }
    least = of_half;
    config = std::move(half);
  }
  return config;
}

std::int64_t PlanScorer::guess(const PlanShape& given, bool searched, std::int64_t far_ns) const {
  const PlanShape config = with_suited_slots(given);
  const auto quick_step = [&](Plan plan, const StepCosts& costs) {
    plan.policy = plan.policy == "entrain" ? "lpt-2d" : plan.policy;
    return score_step(plan, costs, request_.first_step, request_.seed);
  };
  PlanCandidate candidate = make_candidate(config);
  StepScore score;
  bool fits = false;
  if (candidate.state != CandidateState::kNoFit) {
    const StepCosts costs = costs_of(candidate.plan, 0);
    if (!may_recompute() || !sample_miss(candidate.plan, costs)) {
      score = quick_step(candidate.plan, costs);
      fits = score.fits();
    }
  }
  if (!fits && may_recompute()) {
    candidate = lay_out(config, bounds_.cut(config, true));
    if (candidate.state != CandidateState::kNoFit) {
      const RecomputeLevels all = levels_of(candidate.plan);
      set_recompute(all.levels[static_cast<std::size_t>(all.guess)], candidate.plan);
      score = quick_step(candidate.plan, costs_of(candidate.plan, 0));
    }
  }
  if (searched && candidate.state != CandidateState::kNoFit) {
    Plan plan = candidate.plan;
    plan.limits.evaluations = kFewEvaluations;
    score = score_step(
        plan, costs_of(plan, 0), request_.first_step, request_.seed, {.give_up_ns = far_ns});
  }
  return candidate.state == CandidateState::kNoFit || score.ns == 0 ? kNoStop : score.ns;
}

std::int64_t PlanScorer::guess_units(const PlanShape& config) const {
  std::int64_t result = 0;
  for (std::size_t module = 0; module < config.modules.size(); ++module) {
    std::int64_t units = std::ssize(request_.batches.front());
    if (module + 1 < config.modules.size()) {
      for (const SampleWork& sample : request_.batches.front()) {
        units += std::ssize(sample.segments[module]);
      }
    }
    result += units * config.modules[module].all_stages();
  }
  return result;
}

void PlanScorer::report_progress() const {
  if (request_.progress) {
    request_.progress(simulated_steps_);
  }
}

StepScore PlanScorer::step(const Plan& plan, std::size_t batch, std::int64_t give_up_ns) {
  report_progress();
  ++simulated_steps_;
  std::map<std::size_t, DoneStep>* done = nullptr;
  if (request_.further.count() > 0) {
    const auto found = std::find_if(
        done_.begin(), done_.end(), [&](const auto& other) { return other.first == plan; });
    done = found != done_.end()
               ? &found->second
               : &done_.emplace_back(plan, std::map<std::size_t, DoneStep>()).second;
    const auto known = done->find(batch);
    if (known != done->end() &&
        (!known->second.score.gave_up || known->second.score.ns > give_up_ns)) {
      simulated_unit_stages_ += known->second.unit_stages;
      return known->second.score;
    }
  }
  const StepCosts costs = costs_of(plan, batch);
  const std::int64_t units = unit_stages(plan, costs);
  simulated_unit_stages_ += units;
  Plan scored = plan;
  scored.limits.evaluations = request_.score_evaluations;
  StepScore score;
  if (const std::optional<MemoryMiss> miss = sample_miss(plan, costs)) {
    score.reason = miss->reason;
  } else {
    score = score_step(scored,
                       costs,
                       request_.first_step + static_cast<std::int64_t>(batch),
                       request_.seed,
                       {.give_up_ns = give_up_ns, .threads = request_.threads});
  }
  if (done != nullptr) {
    (*done)[batch] = {score, units};
  }
  return score;
}

bool PlanScorer::passes(const FurtherMiss& found, PlanCandidate& candidate) const {
  if (found.fits()) {
    return true;
  }
  candidate.state = CandidateState::kNoFit;
  candidate.further_step = found.step;
  candidate.missing_bytes = found.miss.missing_bytes;
  candidate.reason =
      fmt::format("{}: {}", entrain::describe(request_.further, found.step), found.miss.reason);
  return false;
}

FurtherMiss PlanScorer::check_all(PlanCandidate& candidate) {
  FurtherMiss found = check_.all(candidate.plan);
  passes(found, candidate);
  return found;
}

void PlanScorer::start_part() {
  start_again();
  check_.forget();
  done_.clear();
  all_for_leaders_ = false;
}

void PlanScorer::start_again() {
  simulated_steps_ = 0;
  simulated_unit_stages_ = 0;
  known_.clear();
  lead_ns_ = std::numeric_limits<std::int64_t>::max();
  all_for_leaders_ = true;
}

const std::vector<StepScore>* PlanScorer::known_scores(const Plan& plan) const {
  const auto found = std::find_if(
      known_.begin(), known_.end(), [&](const auto& known) { return known.first == plan; });
  return found == known_.end() ? nullptr : &found->second;
}

void PlanScorer::simulate(PlanCandidate& candidate,
                          std::int64_t stop_at,
                          std::span<const std::int64_t> rival) {
  if (!passes(check_.known(candidate.plan), candidate)) {
    return;
  }
  std::vector<std::vector<LayerRange>> stages;
  for (const ModulePlan& module : candidate.plan.modules) {
    stages.push_back(module.stages);
  }
  std::vector<std::int64_t> rest(request_.batches.size() + 1, 0);  // [batch] bounds from it on
  for (std::size_t batch = request_.batches.size(); batch-- > 0;) {
    rest[batch] = rest[batch + 1] + bounds_.batch_bound(candidate.config, stages, batch);
  }
  std::int64_t done = 0;
  std::size_t num_done = 0;
  const std::vector<StepScore>* known = known_scores(candidate.plan);
  std::vector<StepScore> scores;
  const auto remember = [&] {
    if (known == nullptr && !rival.empty()) {
      known_.emplace_back(candidate.plan, std::move(scores));
    }
  };
  const auto set_aside = [&] {
    candidate.state = CandidateState::kSetAside;
    remember();
  };
  for (std::size_t batch = 0; batch < request_.batches.size(); ++batch) {
    if (done + rest[batch] >= stop_at) {
      candidate.state = CandidateState::kStopped;
      break;
    }
    if (batch > 0 && !rival.empty() && time_over(candidate, rival) > 1 + kFarBehind) {
      set_aside();
      break;
    }
    const bool is_known = known != nullptr && batch < known->size() && !(*known)[batch].gave_up;
    const std::int64_t give_up_ns = gives_up_ ? far_behind_ns(rival, batch) - done : kNoStop;
    const StepScore& score =
        scores.emplace_back(is_known ? (*known)[batch] : step(candidate.plan, batch, give_up_ns));
    if (score.gave_up) {
      candidate.steps.push_back(score.ns);
      candidate.gave_up = true;
      set_aside();
      break;
    }
    add_peaks(score, candidate);
    if (!score.fits()) {
      candidate.state = CandidateState::kNoFit;
      candidate.reason = fmt::format("batch {}: {}", batch, score.reason);
      remember();  // another level of the configuration may be set aside
      return;
    }
    candidate.steps.push_back(score.ns);
    done += score.ns;
    ++num_done;
  }
  candidate.mean_ns = (done + rest[num_done]) / num_batches();
  if (candidate.state == CandidateState::kSimulated && done <= lead_ns_) {
    const Plan& plan = candidate.plan;
    passes(all_for_leaders_ ? check_.all(plan) : check_.few(plan), candidate);
  }
}

}  // namespace entrain
