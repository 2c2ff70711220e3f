#include "entrain/core/graph/placement.h"

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

TEST(EvenRuns, DifferByOneAtMost) {
  EXPECT_EQ(even_runs(7, 3), (std::vector<int>{0, 2, 4, 7}));
  EXPECT_EQ(even_runs(2, 3), (std::vector<int>{0, 0, 1, 2}));
}

TEST(DealInOrder, GivesConsecutiveSamplesToReplicasAndSlots) {
  const oracle::HandCase hand = oracle::make_plain_case({1, 1}, 6);
  const Placement placement = deal_in_order(hand.costs, {5, 4, 3, 2, 1, 0}, 2, 2);
  EXPECT_EQ(placement.samples, (std::vector<std::vector<int>>{{5, 4, 3}, {2, 1, 0}}));
  EXPECT_EQ(placement.num_slots, (std::vector<int>{2, 2}));
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(placement.encoder_slot[0], placement.llm_slot);
}

TEST(DealInOrder, LeavesNoSlotEmptyWithFewerSamplesThanSlots) {
  const oracle::HandCase hand = oracle::make_plain_case({1}, 2);
  const Placement placement = deal_in_order(hand.costs, {0, 1}, 1, 8);
  EXPECT_EQ(placement.num_slots, (std::vector<int>{2}));
}

TEST(ToAssignment, KeepsPackingAndReadingOrder) {
  const oracle::HandCase hand =
      oracle::make_hand_case({1, 1}, 2, {{1, {{0, 1}}}, {1, {{1}}}, {0, {{}}}});
  Placement placement = empty_placement(hand.costs, 1, 2);
  placement.samples[0] = {1, 0, 2};
  place_sample(hand.costs, 1, 1, placement);
  place_sample(hand.costs, 0, 1, placement);
  placement.encoder_slot[0][0] = 0;
  const ReplicaAssignment replica = to_assignment(hand.costs, placement, 0);
  EXPECT_EQ(replica.modules[0][0], (Slot{{.sample = 0, .segment = 0}}));
  EXPECT_EQ(replica.modules[0][1],
            (Slot{{.sample = 1, .segment = 0}, {.sample = 0, .segment = 1}}));
  EXPECT_EQ(replica.modules[1][0], (Slot{{.sample = 2}}));
  EXPECT_EQ(replica.modules[1][1], (Slot{{.sample = 1}, {.sample = 0}}));
}

TEST(CopyReplica, TakesOneReplicaAlone) {
  const oracle::HandCase hand =
      oracle::make_hand_case({1, 1}, 2, {{1, {{0, 1}}}, {1, {{1}}}, {0, {{}}}, {0, {{0}}}});
  const Placement from = deal_in_order(hand.costs, {0, 3, 2, 1}, 2, 2);
  Placement to = deal_in_order(hand.costs, {3, 0, 1, 2}, 2, 1);
  to.chunks[3] = {{0, 1}, {1, 2}};
  const ReplicaAssignment second = to_assignment(hand.costs, to, 1);
  copy_replica(hand.costs, from, 0, to);
  EXPECT_EQ(to_assignment(hand.costs, to, 0), to_assignment(hand.costs, from, 0));
  EXPECT_EQ(to_assignment(hand.costs, to, 1), second);
}

}  // namespace
}  // namespace entrain
