#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/baselines/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

TEST(Lpt2dPolicy, BalancesEncoderAndLlmTogether) {
  // Two samples heavy in the encoder, two heavy in the LLM: each slot gets one of either.
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 4);
  hand.plan.num_slots = 2;
  for (const std::size_t sample : {0U, 1U}) {
    hand.costs.modules[0].stages[0].units[sample].time.forward = nanoseconds{1000};
    hand.costs.modules[1].stages[0].units[sample + 2].time.forward = nanoseconds{1000};
  }
  const Placement placement = lpt_2d_policy({.plan = &hand.plan, .costs = &hand.costs});
  EXPECT_NE(placement.llm_slot[0], placement.llm_slot[1]);
  EXPECT_NE(placement.llm_slot[2], placement.llm_slot[3]);
  EXPECT_EQ(placement.encoder_slot[0], placement.llm_slot);
}

TEST(Lpt2dPolicy, GivesEveryReplicaASampleWithoutAnyWork) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 4);
  hand.plan.replicas = 4;
  for (ModuleCosts& module : hand.costs.modules) {
    for (UnitCost& unit : module.stages[0].units) {
      unit.time = {};
    }
  }
  for (const std::vector<int>& samples :
       lpt_2d_policy({.plan = &hand.plan, .costs = &hand.costs}).samples) {
    EXPECT_EQ(samples.size(), 1U);
  }
}

}  // namespace
}  // namespace entrain
