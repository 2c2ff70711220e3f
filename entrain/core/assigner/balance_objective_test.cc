#include "entrain/core/assigner/balance_objective.h"

#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/balance.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

AssignRequest balance_request_of(const oracle::HandCase& hand) {
  AssignRequest request;
  request.plan = &hand.plan;
  request.costs = &hand.costs;
  request.objective = Objective::kBalance;
  return request;
}

TEST(BalanceObjective, GivesAnOversizedSampleItsOwnSlot) {
  // One oversized unit in each module, on different samples; 27 others of 10 in 14 other slots of
  // that module, that is 20 each but for two slots.
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 28);
  hand.plan.replicas = 3;
  hand.plan.num_slots = 5;
  hand.costs.modules[0].stages[0].units[3].time.forward = nanoseconds{100};
  hand.costs.modules[1].stages[0].units[9].time.forward = nanoseconds{100};
  const StepAssignment result =
      to_assignment(hand.costs, balance_objective(balance_request_of(hand)));
  validate_assignment(result, hand.plan, hand.costs);
  for (const int module : {0, 1}) {
    std::vector<std::int64_t> loads;
    for (const ReplicaAssignment& replica : result.replicas) {
      EXPECT_EQ(replica.num_slots, 5);
      for (const Slot& slot : replica.modules[static_cast<std::size_t>(module)]) {
        std::int64_t& load = loads.emplace_back(0);
        for (const WorkItem& item : slot) {
          load += hand.costs.modules[static_cast<std::size_t>(module)]
                      .stages[0]
                      .units[static_cast<std::size_t>(hand.costs.unit_of(module, item))]
                      .time.forward.count();
        }
      }
    }
    std::sort(loads.begin(), loads.end());
    EXPECT_EQ(loads.back(), 100);
    EXPECT_EQ(loads[loads.size() - 2], 20);
    EXPECT_GE(loads.front(), 10);
  }
}

TEST(BalanceObjective, IsWhatTheEntrainPolicyDoesWhenAsked) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 12);
  hand.plan.num_slots = 4;
  hand.costs.modules[0].stages[0].units[0].time.forward = nanoseconds{25};
  const StepAssignment result = assign("entrain", balance_request_of(hand));
  EXPECT_EQ(result.replicas,
            to_assignment(hand.costs, balance_objective(balance_request_of(hand))).replicas);
  EXPECT_EQ(result.replicas[0].num_slots, 4);
  EXPECT_NEAR(module_balance(result, hand.costs, hand.costs.llm_module()).cv, 0, 1e-12);
}

}  // namespace
}  // namespace entrain
