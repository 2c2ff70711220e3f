#include "entrain/core/assigner/balance_loads.h"

#include <gtest/gtest.h>

#include "entrain/core/baselines/module_work.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

// Sample 0 has two segments, sample 1 one, sample 2 none; every unit takes 10 ns in four slots.
struct LoadsCase {
  LoadsCase() {
    hand = oracle::make_hand_case({1, 1}, 4, {{0, {{0, 0}}}, {0, {{0}}}, {0, {{}}}});
    times.unit = {forward_times(hand.costs, 0), forward_times(hand.costs, 1)};
    times.sample_of = {{0, 0, 1}, {0, 1, 2}};
    times.level = {7.5, 7.5};
    placement = empty_placement(hand.costs, 1, 4);
    placement.samples[0] = {0, 1, 2};
  }
  oracle::HandCase hand;
  BalanceTimes times;
  Placement placement;
};

TEST(SlotLoads, FollowsUnitsFromSlotToSlot) {
  LoadsCase instance;
  SlotLoads loads(instance.hand.costs, instance.times, 0, -1, instance.placement);
  loads.put_sample(0, 1);
  loads.put_sample(1, 1);
  EXPECT_EQ(loads.load(0, 1), 30);
  EXPECT_EQ(loads.load(1, 1), 20);
  EXPECT_EQ(loads.encoder_slot(0), 1);
  const int version = loads.version(0, 0) + loads.version(0, 1);
  loads.move(0, 1, 0);
  EXPECT_GT(loads.version(0, 0) + loads.version(0, 1), version);
  EXPECT_EQ(loads.load(0, 0), 10);
  EXPECT_EQ(loads.load(0, 1), 20);
  EXPECT_EQ(loads.members(0, 1), (std::vector<int>{0, 2}));
  EXPECT_EQ(instance.placement.encoder_slot[0], (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(loads.encoder_slot(0), -1);
  EXPECT_EQ(loads.encoder_slot(2), -1);
  // (10² + 20² + 20²) / 7.5²
  EXPECT_DOUBLE_EQ(loads.score(), 16.0);
}

TEST(SlotLoads, KnowsTheFreedomOfUnits) {
  LoadsCase instance;
  SlotLoads loads(instance.hand.costs, instance.times, 0, 1, instance.placement);
  loads.put_sample(0, 2);
  loads.move(0, 1, 1);
  EXPECT_EQ(loads.llm_range(0).begin, 2);
  EXPECT_EQ(loads.llm_range(0).last, 2);
  EXPECT_EQ(loads.range_of(0, 0, true).begin, 1);
  EXPECT_EQ(loads.range_of(0, 0, true).last, 2);
  EXPECT_EQ(loads.range_of(0, 0, false).last, 3);
  EXPECT_EQ(loads.llm_range(2).begin, 0);
  EXPECT_EQ(loads.llm_range(2).last, 3);
}

TEST(SlotLoads, ReadsThePlacementAgain) {
  LoadsCase instance;
  SlotLoads loads(instance.hand.costs, instance.times, 0, -1, instance.placement);
  instance.placement.llm_slot = {1, 2, 3};
  instance.placement.encoder_slot[0] = {0, 1, 2};
  loads.reload();
  EXPECT_EQ(loads.load(0, 2), 10);
  EXPECT_EQ(loads.load(1, 3), 10);
  EXPECT_EQ(loads.members(0, 1), std::vector<int>{1});
}

TEST(BalanceTimes, CountsAUnitAtMostAsTheLevel) {
  LoadsCase instance;
  EXPECT_DOUBLE_EQ(instance.times.counted(instance.hand.costs, 0, 0), 2.0);
  instance.times.level[0] = 20;
  EXPECT_DOUBLE_EQ(instance.times.counted(instance.hand.costs, 0, 0), 1.0);
  instance.times.level[0] = 0;
  EXPECT_DOUBLE_EQ(instance.times.counted(instance.hand.costs, 0, 0), 0.0);
}

}  // namespace
}  // namespace entrain
