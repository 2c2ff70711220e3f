#include "entrain/core/study/cases.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/balance.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/parallel.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_safety.h"
#include "entrain/core/report/critical_path.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/step/step.h"

namespace entrain {
namespace {

// [module] forward time of each replica's share, spread over replicas.
std::vector<Spread> replica_spreads(const StepAssignment& assignment, const StepCosts& costs) {
  std::vector<Spread> result;
  for (int module = 0; module <= costs.llm_module(); ++module) {
    std::vector<double> loads;
    for (const ReplicaAssignment& replica : assignment.replicas) {
      std::int64_t load = 0;
      for (const StageCosts& stage : costs.modules[at(module)].stages) {
        std::vector<char> counted(stage.units.size(), 0);  // a sample's chunks count once
        for (const Slot& slot : replica.modules[at(module)]) {
          for (const WorkItem& item : slot) {
            const std::size_t unit = at(costs.unit_of(module, item));
            load += counted[unit] == 0 ? stage.units[unit].time.forward.count() : 0;
            counted[unit] = 1;
          }
        }
      }
      loads.push_back(static_cast<double>(load));
    }
    result.push_back(spread_of(loads));
  }
  return result;
}

bool at_plan_slots(const StepAssignment& assignment, const Plan& plan) {
  return std::all_of(
      assignment.replicas.begin(),
      assignment.replicas.end(),
      [&](const ReplicaAssignment& replica) { return replica.num_slots == plan.num_slots; });
}

// One step of one case.
class CaseRunner {
 public:
  CaseRunner(const CasesRequest& request,
             const CaseResult& of,
             int num_slots,
             const StudyStep& inputs,
             std::int64_t step)
      : given_(of.policy == kGivenPolicy ? &*request.given : nullptr),
        inputs_(inputs),
        plan_(inputs.plan),
        links_(request.links),
        request_(request.assign) {
    plan_.policy = of.policy;
    plan_.schedule = of.schedule;
    plan_.num_slots = num_slots;
    request_.plan = &plan_;
    request_.costs = &inputs.costs;
    request_.step = request.first_step + step;
    request_.seed = request.study->inputs.seed;
    if (links_ != LinkSharing::kChannel && request.study->cluster) {
      network_ = cluster_network(*request.study->cluster, plan_, inputs.costs.link);
    }
  }
  CaseRunner(const CaseRunner&) = delete;
  CaseRunner& operator=(const CaseRunner&) = delete;

  SlotTrial try_it() const { return try_slots(plan_.policy, request_); }

  CaseStep run() const {
    CaseStep result;
    if (const std::string objection = schedule_objection(plan_.schedule, plan_);
        !objection.empty()) {
      result.refused = concat(kObjection, objection);
      return result;
    }
    const StepOptions asked{
        .prove_limits = false, .events = true, .bound = true, .links = links_, .network = network_};
    SimulatedStep step;
    try {
      step = given_ != nullptr ? simulate_step(*given_, plan_, inputs_.costs, asked)
                               : simulate_step(plan_.policy, request_, asked);
    } catch (const NothingFits& no) {
      result.refused = no.what();
      return result;
    }
    result.samples = inputs_.costs.num_samples;
    for (const SampleWork& work : inputs_.costs.work) {
      result.llm_tokens += work.llm_tokens;
    }
    result.step_ns = step.timeline.makespan.count();
    result.bound_ns = step.bound.count();
    result.causes = gap_causes(step.program, step.timeline, inputs_.costs, step.bound);
    for (const LaneAccount& lane : lane_accounts(step.program, step.timeline)) {
      result.reduction_ns = std::max<std::int64_t>(result.reduction_ns, lane.reduction.count());
    }
    result.bubble = bubble_fraction(step.timeline);
    result.peak_bytes = *std::max_element(step.peak_bytes.begin(), step.peak_bytes.end());
    result.lane_peak_bytes = step.peak_bytes;
    if (step.excess) {
      result.over_bytes = step.excess->over();
      result.over = to_string(step.program, *step.excess);
    }
    result.assign_ms = step.assignment.stats.assign_ms;
    result.replicas = replica_spreads(step.assignment, inputs_.costs);
    measure_balance(step.assignment, result);
    for (const ReplicaAssignment& replica : step.assignment.replicas) {
      result.num_slots.push_back(replica.num_slots);
      result.deferred += std::ssize(deferrals(replica));
      result.chunks += num_chunks(replica);
    }
    return result;
  }

 private:
  void measure_balance(const StepAssignment& assignment, CaseStep& result) const {
    std::optional<StepAssignment> fixed;
    if (given_ != nullptr) {
      result.equal_slots = at_plan_slots(assignment, inputs_.plan);
    } else if (!at_plan_slots(assignment, inputs_.plan)) {
      Plan plan = plan_;
      plan.num_slots = inputs_.plan.num_slots;
      // A long search for the step time need not be made twice.
      plan.limits.evaluations =
          std::min(plan.limits.evaluations, default_evaluations(plan.replicas));
      AssignRequest request = request_;
      request.plan = &plan;
      request.options.choose_slots = false;
      try {
        fixed = assign(plan_.policy, request);
        result.equal_slots = at_plan_slots(*fixed, plan);
      } catch (const NothingFits&) {
        result.equal_slots = false;
      }
    }
    const StepAssignment& measured = fixed && result.equal_slots ? *fixed : assignment;
    for (int module = 0; module <= inputs_.costs.llm_module(); ++module) {
      result.balance.push_back(module_balance(measured, inputs_.costs, module));
    }
  }

  const StepAssignment* given_;
  const StudyStep& inputs_;
  Plan plan_;
  LinkSharing links_;
  Network network_;
  AssignRequest request_;
};

// Calls work(index) for all of them and reports the share of `total` pieces that is done.
class Workers {
 public:
  Workers(const CasesRequest& request, std::int64_t total) : request_(request), total_(total) {}

  void run(std::int64_t count, const std::function<void(std::int64_t)>& work) {
    parallel_for(count, request_.threads, [&](std::int64_t index) {
      work(index);
      const MutexLock lock(mutex_);
      ++done_;
      if (request_.progress) {
        request_.progress(static_cast<double>(done_) / static_cast<double>(total_));
      }
    });
  }

 private:
  const CasesRequest& request_;
  std::int64_t total_;
  Mutex mutex_;
  std::int64_t done_ ENTRAIN_GUARDED_BY(mutex_) = 0;
};

void check_schedules(const CasesRequest& request) {
  std::string objections;
  for (const std::string& schedule : request.schedules) {
    const std::string objection = schedule_objection(schedule, request.plan);
    if (objection.empty()) {
      return;
    }
    objections += concat(objections.empty() ? "" : "; ",
                         "schedule '",
                         schedule,
                         "' cannot run this plan: ",
                         objection);
  }
  throw InvalidInput(objections);
}

// One trial of a case that may be given several numbers of slots.
struct Trial {
  std::size_t result = 0;
  std::int64_t step = 0;
  SlotTrial slots;
};

std::vector<Trial> trials_of(const CasesRequest& request, const std::vector<CaseResult>& results) {
  std::vector<Trial> trials;
  for (std::size_t result = 0; result < results.size(); ++result) {
    for (std::int64_t step = 0; step < request.steps; ++step) {
      for (const int slots : results[result].given_slots > 0 ? request.slots : std::vector<int>()) {
        trials.push_back({result, step, {slots, false, 0, 0}});
      }
    }
  }
  return trials;
}

void choose_slots(const std::vector<Trial>& trials, std::vector<CaseResult>& results) {
  for (std::size_t result = 0; result < results.size(); ++result) {
    std::vector<SlotTrial> own;
    for (const Trial& trial : trials) {
      if (trial.result == result) {
        own.push_back(trial.slots);
      }
    }
    if (!own.empty()) {
      results[result].given_slots = best_slots(own);
    }
  }
}

}  // namespace

bool chooses_slots(const std::string& policy, const AssignRequest& request) {
  return policy == "disttrain" || (policy == "entrain" && request.options.choose_slots &&
                                   request.objective == Objective::kStepTime);
}

std::vector<int> slot_candidates(const Plan& plan, int global_batch) {
  const int most = std::max(1, global_batch / plan.replicas);
  std::set<int> result;
  for (const int slots : {1, 2, 4, 8, 12, 16, 24, 32, plan.num_slots}) {
    result.insert(std::min(slots, most));
  }
  return {result.begin(), result.end()};
}

SlotTrial try_slots(const std::string& policy, const AssignRequest& request) {
  SlotTrial trial;
  trial.num_slots = request.plan->num_slots;
  trial.refused = !schedule_objection(request.plan->schedule, *request.plan).empty();
  if (trial.refused) {
    return trial;
  }
  try {
    const SimulatedStep step = simulate_step(policy, request, {.prove = false});
    trial.step_ns = step.timeline.makespan.count();
    trial.over_bytes = step.excess ? step.excess->over() : 0;
  } catch (const NothingFits&) {
    trial.refused = true;
  }
  return trial;
}

int best_slots(const std::vector<SlotTrial>& trials) {
  std::map<int, std::array<std::int64_t, 3>> scores;  // refused, over and time over all steps
  for (const SlotTrial& trial : trials) {
    std::array<std::int64_t, 3>& score = scores[trial.num_slots];
    score[0] += trial.refused ? 1 : 0;
    score[1] += trial.over_bytes > 0 ? 1 : 0;
    score[2] += trial.step_ns;
  }
  ENTRAIN_INVARIANT(!scores.empty(), "slots chosen among no trial");
  return std::min_element(scores.begin(),
                          scores.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::vector<CaseResult> run_cases(const CasesRequest& request) {
  ENTRAIN_INVARIANT(request.study != nullptr, "cases need a study");
  std::vector<StudyStep> inputs(at(request.steps));
  parallel_for(request.steps, request.threads, [&](std::int64_t step) {
    inputs[at(step)] =
        make_step(*request.study, request.plan, request.memory, request.first_step + step);
  });
  check_schedules(request);
  std::vector<CaseResult> results;
  for (const std::string& schedule : request.schedules) {
    if (request.given) {
      results.push_back({std::string(kGivenPolicy), schedule, std::vector<CaseStep>(1), 0});
    }
    for (const std::string& policy : request.policies) {
      const bool own = chooses_slots(policy, request.assign);
      results.push_back({policy,
                         schedule,
                         std::vector<CaseStep>(at(request.steps)),
                         own ? 0 : request.plan.num_slots});
    }
  }
  std::vector<Trial> trials = trials_of(request, results);
  const std::int64_t runs = std::ssize(results) * request.steps;
  Workers workers(request, std::ssize(trials) + runs);
  workers.run(std::ssize(trials), [&](std::int64_t index) {
    Trial& trial = trials[at(index)];
    const CaseResult& result = results[trial.result];
    trial.slots =
        CaseRunner(request, result, trial.slots.num_slots, inputs[at(trial.step)], trial.step)
            .try_it();
  });
  choose_slots(trials, results);
  workers.run(runs, [&](std::int64_t index) {
    CaseResult& result = results[at(index / request.steps)];
    const std::int64_t step = index % request.steps;
    const int slots = result.given_slots > 0 ? result.given_slots : request.plan.num_slots;
    result.steps[at(step)] = CaseRunner(request, result, slots, inputs[at(step)], step).run();
  });
  return results;
}

}  // namespace entrain
