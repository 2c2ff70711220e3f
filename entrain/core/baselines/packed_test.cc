#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/baselines/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

oracle::HandCase with_tokens(const std::vector<std::int64_t>& tokens) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, static_cast<int>(tokens.size()));
  hand.costs.modules[1].tokens = tokens;
  return hand;
}

Placement packed_placement(const oracle::HandCase& hand) {
  return packed_policy({.plan = &hand.plan, .costs = &hand.costs});
}

TEST(PackedPolicy, FillsTheFirstSlotThatHasRoom) {
  oracle::HandCase hand = with_tokens({6, 5, 4, 3, 2});
  hand.plan.num_slots = 2;
  // At capacity 10: 6 + 4, then 5 + 3 + 2. Nothing less holds 20 tokens in two slots.
  const Placement placement = packed_placement(hand);
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{0, 1, 0, 1, 1}));
  EXPECT_EQ(placement.encoder_slot[0], placement.llm_slot);
}

TEST(PackedPolicy, RaisesTheCapacityUntilTheSlotsSuffice) {
  oracle::HandCase hand = with_tokens({3, 3, 3, 3, 3});
  hand.plan.num_slots = 2;
  // The mean is 7.5, but two slots of whole samples need a capacity of 9.
  EXPECT_EQ(packed_placement(hand).llm_slot, (std::vector<int>{0, 0, 0, 1, 1}));
}

TEST(PackedPolicy, HasOneCapacityForAllReplicas) {
  oracle::HandCase hand = with_tokens({8, 8, 1, 1});
  hand.plan.replicas = 2;
  hand.plan.num_slots = 2;
  // Capacity 8 comes from the first replica; the second one needs a single slot.
  const Placement placement = packed_placement(hand);
  EXPECT_EQ(placement.samples, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{0, 1, 0, 0}));
  EXPECT_EQ(placement.num_slots, (std::vector<int>{2, 1}));
}

}  // namespace
}  // namespace entrain
