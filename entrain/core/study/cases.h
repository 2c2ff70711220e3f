// Policies × schedules × steps under one plan, each assigned, scheduled, proven and simulated.
//
// Read first: run_cases().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/report/gap_causes.h"
#include "entrain/core/report/statistics.h"
#include "entrain/core/simulator/network.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/study/memory_rule.h"
#include "entrain/core/study/study.h"

namespace entrain {

struct CasesRequest {
  const Study* study = nullptr;
  Plan plan;  // its policy and schedule are ignored
  std::vector<std::string> policies;
  std::vector<std::string> schedules;
  std::int64_t first_step = 0;
  std::int64_t steps = 1;  // first_step … first_step + steps - 1
  // Of first_step: judged beside the policies, as kGivenPolicy. `steps` is 1 then.
  std::optional<StepAssignment> given;
  MemoryRule memory;
  // What messages go over. Other than kChannel: over the study's cluster, where it has one
  // (cluster_network()). The policies and the bound know of no sharing.
  LinkSharing links = LinkSharing::kChannel;
  AssignRequest assign;  // options, objective and threads; the rest is that of each step
  // Numbers of slots per replica that are tried for policies without their own choice: each case
  // runs with its best. Empty: plan.num_slots for all.
  std::vector<int> slots;
  int threads = 1;
  std::function<void(double share)> progress;  // of all work, one call at a time; may be empty
};

// How CaseStep::refused begins where the schedule cannot run the plan.
inline constexpr std::string_view kObjection = "the schedule cannot run this plan: ";

// The policy of CasesRequest::given.
inline constexpr std::string_view kGivenPolicy = "given";

// Whether the policy takes another number of slots than the plan's at will, by the request's
// options and objective.
bool chooses_slots(const std::string& policy, const AssignRequest& request);

// 1, 2, 4, 8, 12, 16, 24, 32 and the plan's own, none above the samples of a replica; rising.
std::vector<int> slot_candidates(const Plan& plan, int global_batch);

// One way to run a step, to choose from.
struct SlotTrial {
  int num_slots = 0;
  bool refused = false;         // nothing fits, or the schedule cannot run the plan
  std::int64_t over_bytes = 0;  // by how much the fullest lane exceeds its limit
  std::int64_t step_ns = 0;
};

// Assigns and simulates at request.plan's num_slots and schedule.
SlotTrial try_slots(const std::string& policy, const AssignRequest& request);

// The num_slots that is refused on the fewest steps, then over its limit on the fewest, then
// fastest on average; of equal ones the smallest.
// Requires  at least one trial.
int best_slots(const std::vector<SlotTrial>& trials);

// One step of one case.
struct CaseStep {
  // Why nothing fits, or why the schedule cannot run the plan; the other fields are empty then.
  std::string refused;
  std::int64_t samples = 0;
  std::int64_t llm_tokens = 0;
  std::int64_t step_ns = 0;
  std::int64_t bound_ns = 0;        // step_lower_bound()
  std::optional<GapCauses> causes;  // of step_ns - bound_ns; none for a mean over plans
  std::int64_t reduction_ns = 0;    // of gradients over replicas, on the lane that takes longest
  double bubble = 0;
  std::vector<int> num_slots;                 // [replica]
  std::int64_t deferred = 0;                  // samples per encoder and slot
  std::int64_t chunks = 0;                    // of cut samples
  std::int64_t peak_bytes = 0;                // of the fullest lane
  std::vector<std::int64_t> lane_peak_bytes;  // [lane] of the replica that has most there
  std::int64_t over_bytes = 0;  // by how much the lane that exceeds its limit the most does so
  std::string over;             // where, in words
  // [module] forward times over each replica's slots at the plan's num_slots: of a second
  // assignment where the policy chose another number and can be told not to.
  std::vector<ModuleBalance> balance;
  bool equal_slots = true;       // false: `balance` is at the policy's own number of slots
  std::vector<Spread> replicas;  // [module] forward times per replica
  double assign_ms = 0;          // wall time; the only figure that other threads affect

  [[nodiscard]] double gap() const {
    return bound_ns > 0 ? static_cast<double>(step_ns) / static_cast<double>(bound_ns) - 1 : 0;
  }
};

struct CaseResult {
  std::string policy;
  std::string schedule;
  std::vector<CaseStep> steps;
  int given_slots = 0;  // to the policy; 0: it chose its own
};

// Cases by schedule, then policy, in the order given.
//
// Ensures  every assignment and every program has been proven (validate_assignment,
//          validate_program), memory limits left aside: a case that exceeds them says by how much.
//          Results do not depend on `threads`, wall times excepted.
// Throws   InvalidInput for what assign() and build_program() refuse. NothingFits is kept in
//          CaseStep::refused, and so is a schedule that cannot run the plan, unless none
//          can.
std::vector<CaseResult> run_cases(const CasesRequest& request);

}  // namespace entrain
