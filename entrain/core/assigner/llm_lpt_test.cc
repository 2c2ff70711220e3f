#include <gtest/gtest.h>

#include "entrain/core/assigner/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

TEST(LlmLptPolicy, BalancesThatModuleAndIgnoresTheOther) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 4);
  hand.plan.num_slots = 2;
  for (const std::size_t sample : {0U, 1U}) {
    hand.costs.modules[1].stages[0].units[sample].time.backward_input = nanoseconds{1000};
  }
  // A work that would draw samples 0 and 2 apart, were it looked at.
  for (const std::size_t sample : {0U, 2U, 3U}) {
    hand.costs.modules[0].stages[0].units[sample].time.forward = nanoseconds{9000};
  }
  const Placement placement = llm_lpt_policy({.plan = &hand.plan, .costs = &hand.costs});
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{0, 1, 0, 1}));
}

}  // namespace
}  // namespace entrain
