// Pipeline schedules: (plan, assignment, costs) → Program.
//
// Read first: build_program().
//
// How to add a schedule. A schedule is one line in the registry of schedule.cc, and one test beside
// the others of this package. Commands, studies, the planner and the assigner's search read the
// registry: nothing else names schedules. There are three kinds.
//
// 1. A rule of the list scheduler (rules.h): turns with a warm-up of so many slots, weight halves
//    where they belong. Add a ListRule beside kOneFOneBRule, and register {RuleChoice::kOnly,
//    {rule}}. The search then replays it at a few tens of nanoseconds an operation. A rule that
//    needs a field that ListRule lacks adds the field, and one place in ListScheduler that reads
//    it: advance() what a stage runs next in turns, weigh() what a lane prefers where it chooses,
//    start() what a stage begins with.
// 2. An order that is found: several rules, of which the first that fits (kFirstThatFits) or the
//    fastest (kFastest) runs. Add a function beside entrain_rules(). Rules of other schedules are
//    candidates of the fastest by themselves.
// 3. An order by a formula that no field of a rule expresses: an OrderRule (rules.h) in a file of
//    its own, as interleaved.cc, and a ListRule that names it.
//
// A schedule that cannot run every plan registers an objection: a sentence that says what it needs.
//
// What has to hold for the order is at OrderRule; validate_program() proves it, and
// tests/property/program_test.cc runs every registered schedule over random cases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/schedule/rules.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// "gpipe", "1f1b", "1f1b-eager", "zb-h1", "zb-h2", "interleaved", "dip", "entrain", "entrain-fused"
// (no split backward); rules.h and order.h say what each of them does.
std::vector<std::string> schedule_names();

// Each throws InvalidInput for an unknown schedule, with a suggestion.

// Whether the schedule may run a backward in halves.
bool splits_backward(std::string_view schedule);
// How the list scheduler makes the schedule's order on this plan.
// kFastest: the rules of all other schedules that can run the plan are among them, unless they
// split backwards and the schedule does not, so that none of those is faster within the limits.
ListSchedule list_schedule(std::string_view schedule, const Plan& plan);
// Why the schedule cannot run the plan: a sentence that says what it needs. Empty: it can.
std::string schedule_objection(std::string_view schedule, const Plan& plan);

// Builds groups, the compute order of every lane by the named schedule's rule, then sends directly
// after their producers, receives in the sender's order one compute operation ahead of need, and
// the step-wide operations at the end.
//
// Requires  a valid assignment for this plan (validate_assignment).
// Ensures   validate_program() holds for the result, except that these fixed orders ignore
//           limits.bytes_of(lane); pure function of its inputs.
// Throws    InvalidInput for an unknown schedule (with a suggestion) and for one that cannot run
// the
//           plan (schedule_objection).
// Cost      O(operations + parts + items × stages); lanes that host some but not all stages
// O(operations × stages).
Program build_program(const Plan& plan,
                      const StepAssignment& assignment,
                      const StepCosts& costs,
                      std::string_view schedule);

// The same with its graph, for simulate() and memory_over_time().
struct BuiltStep {
  Program program;
  StepGraph graph;  // step_graph() of the program
};
BuiltStep build_step(const Plan& plan,
                     const StepAssignment& assignment,
                     const StepCosts& costs,
                     std::string_view schedule);

// The same for given compute orders, such as those of a file.
//
// Shapes    orders: [replica][lane][position], forward, backward or its halves, units of the groups
//           that build_groups() makes of the assignment.
// Requires  a valid assignment for this plan (validate_assignment).
// Ensures   validate_program() holds for the result, limits.bytes_of(lane) included; its schedule
//           is `name`.
// Throws    InvalidInput that names replica, lane and operation if orders are no valid program.
// Cost      that of validate_program().
Program build_program_from_orders(const Plan& plan,
                                  const StepAssignment& assignment,
                                  const StepCosts& costs,
                                  const std::vector<std::vector<std::vector<Operation>>>& orders,
                                  std::string_view name);

// Proves a program against its plan and assignment, whatever made it:
// - every item of the assignment is in exactly one group of its slot, an encoder's grouped by
//   the LLM group that takes its features in rising order, an LLM slot's by the slot in which its
//   sample ends; groups that hold neighbouring chunks of a sample are linked;
// - every group runs forward once per stage on the stage's lane; backward (or both halves, input
//   before weight) exactly once if and only if autograd would run one; a chunk's forward
//   is after that of the previous chunk, its backward after that of the next chunk;
// - every input crosses lanes by exactly one send and one receive on the right channel, receives
//   are in the sender's order, a send is after its producers, a receive before its
//   consumers;
// - no cycle, even if every send waits for its receive to be posted;
// - each lane's activation bytes stay within limits.bytes_of(lane) at every point;
// - reduce_gradients (more than one replica, on lanes with something trainable), clip_norm and
//   optimizer_step occur once, in this order, at every lane's end, and no step-wide operation
//   elsewhere.
//
// Requires  an assignment that is valid for the plan (validate_assignment).
// Throws    InvalidInput that names replica, lane and operation of the first violation.
// Cost      O(operations × log(operations) + parts).
void validate_program(const Program& program,
                      const Plan& plan,
                      const StepAssignment& assignment,
                      const StepCosts& costs);

}  // namespace entrain
