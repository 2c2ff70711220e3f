#include <gtest/gtest.h>

#include "entrain/core/assigner/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

TEST(SequentialPolicy, KeepsTheDrawnOrder) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 8);
  hand.plan.replicas = 2;
  hand.plan.num_slots = 2;
  const Placement placement = sequential_policy({.plan = &hand.plan, .costs = &hand.costs});
  EXPECT_EQ(placement.samples, (std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{0, 0, 1, 1, 0, 0, 1, 1}));
}

}  // namespace
}  // namespace entrain
