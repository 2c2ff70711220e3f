#include "entrain/core/assigner/greedy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "entrain/core/assigner/slot_bytes.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

Placement placed(oracle::HandCase hand, const SlotRule& rule, int max_deferral = -1) {
  hand.plan.limits.max_deferral = max_deferral;
  BatchLoads loads = batch_loads(hand.plan, hand.costs);
  loads.lane_bytes = activations_of(hand.plan, hand.costs);
  Placement placement = empty_placement(hand.costs, 1, 1);
  placement.samples = deal_to_replicas(loads, 1);
  place_in_slots(hand.plan, loads, hand.costs, 0, rule, placement);
  return placement;
}

TEST(DealToReplicas, BalancesBothModules) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 40);
  for (std::size_t i = 0; i < 40; ++i) {
    hand.costs.modules[0].stages[0].units[i].time.forward = nanoseconds{(i * 37) % 41 * 100};
    hand.costs.modules[1].stages[0].units[i].time.forward = nanoseconds{(i * 23) % 37 * 100};
  }
  const BatchLoads loads = batch_loads(hand.plan, hand.costs);
  const auto replicas = deal_to_replicas(loads, 4);
  for (const std::vector<int>& samples : replicas) {
    Load sum{};
    for (const int sample : samples) {
      for (std::size_t d = 0; d < sum.size(); ++d) {
        sum[d] += loads.sample[static_cast<std::size_t>(sample)][d];
      }
    }
    EXPECT_NEAR(sum[0], loads.total[0] / 4, loads.total[0] / 40);
    EXPECT_NEAR(sum[1], loads.total[1] / 4, loads.total[1] / 40);
  }
}

TEST(DealToReplicas, LeavesNoReplicaEmpty) {
  oracle::HandCase hand = oracle::make_plain_case({1}, 4);
  for (UnitCost& unit : hand.costs.modules[0].stages[0].units) {
    unit.time = {};
  }
  for (const std::vector<int>& samples : deal_to_replicas(batch_loads(hand.plan, hand.costs), 4)) {
    EXPECT_EQ(samples.size(), 1U);
  }
}

// Samples on two stages, of which the given ones take as much as nine others.
oracle::HandCase case_with_long(const std::vector<std::size_t>& long_samples, int samples = 40) {
  oracle::HandCase hand = oracle::make_plain_case({2}, samples);
  for (StageCosts& stage : hand.costs.modules[0].stages) {
    for (UnitCost& unit : stage.units) {
      unit.time = {nanoseconds{100}, nanoseconds{100}, nanoseconds{100}};
    }
    for (const std::size_t sample : long_samples) {
      stage.units[sample].time = {nanoseconds{900}, nanoseconds{900}, nanoseconds{900}};
    }
  }
  return hand;
}

std::vector<std::vector<int>> together(const oracle::HandCase& hand, int replicas) {
  return deal_together(hand.costs, batch_loads(hand.plan, hand.costs), replicas);
}

TEST(DealTogether, FillsOneReplicaWithLongSamplesAndBalancesAll) {
  const oracle::HandCase hand = case_with_long({3, 31}, 82);
  const auto replicas = together(hand, 4);
  ASSERT_EQ(replicas.size(), 4U);
  EXPECT_EQ(replicas[0][0], 3);
  EXPECT_EQ(replicas[0][1], 31);
  std::vector<int> all;
  for (const std::vector<int>& samples : replicas) {
    EXPECT_NEAR(static_cast<double>(samples.size()), &samples == &replicas[0] ? 8 : 24.7, 1);
    all.insert(all.end(), samples.begin(), samples.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int> expected(82);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(DealTogether, OpensTheNextReplicaWhereOneIsFull) {
  const auto replicas = together(case_with_long({0, 1, 2, 3, 4, 5, 6}, 160), 4);
  ASSERT_EQ(replicas.size(), 4U);
  std::vector<int> with_long;
  for (const std::vector<int>& samples : replicas) {
    with_long.push_back(static_cast<int>(
        std::count_if(samples.begin(), samples.end(), [](int sample) { return sample < 7; })));
  }
  EXPECT_EQ(with_long, (std::vector<int>{5, 2, 0, 0}));
}

TEST(DealTogether, IsEmptyWhereNothingIsGained) {
  EXPECT_TRUE(together(case_with_long({3}), 4).empty()) << "one is long";
  EXPECT_TRUE(together(case_with_long({0, 1, 2, 3, 4, 5, 6, 7}), 4).empty())
      << "long ones everywhere";
  EXPECT_TRUE(together(case_with_long({0, 1}, 3), 4).empty()) << "others are too few";
}

// Two stages with six samples of 100 bytes on each: lane 0 holds two neighbouring slots.
TEST(PlaceInSlots, KeepsHeavySamplesApartWhereBytesAreShort) {
  oracle::HandCase hand = oracle::make_plain_case({2}, 6);
  for (StageCosts& stage : hand.costs.modules[0].stages) {
    for (UnitCost& unit : stage.units) {
      unit.activation_bytes = 100;
    }
  }
  const auto most_in_flight = [&](int percent, int num_slots) {
    SlotRule rule{.num_slots = num_slots, .shape = kTriangle, .bytes_percent = percent};
    const Placement placement = placed(hand, rule);
    std::vector<int> counts(static_cast<std::size_t>(num_slots), 0);
    for (const int slot : placement.llm_slot) {
      ++counts[static_cast<std::size_t>(slot)];
    }
    int most = 0;
    for (std::size_t slot = 1; slot < counts.size(); ++slot) {
      most = std::max(most, counts[slot - 1] + counts[slot]);
    }
    return most;
  };
  hand.plan.limits.bytes_per_lane = 400;
  EXPECT_GT(most_in_flight(0, 5), 2);
  EXPECT_LE(most_in_flight(100, 5), 4);
  EXPECT_EQ(most_in_flight(50, 6), 2);
  // Nowhere enough room: the least is exceeded.
  EXPECT_EQ(most_in_flight(25, 6), 2);
}

TEST(PlaceInSlots, FillsInProportionToTheTargets) {
  const oracle::HandCase hand = oracle::make_plain_case({1, 1}, 60);
  const Placement placement = placed(hand, {.num_slots = 7, .shape = kTriangle});
  std::vector<int> counts(7, 0);
  for (const int slot : placement.llm_slot) {
    ++counts[static_cast<std::size_t>(slot)];
  }
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 60);
  EXPECT_TRUE(std::is_sorted(counts.begin(), counts.begin() + 4));
  EXPECT_TRUE(std::is_sorted(counts.rbegin(), counts.rbegin() + 4));
  EXPECT_GE(counts[3], 3 * counts[0]);
}

TEST(PlaceInSlots, PutsTheLlmsWorkBeforeTheEncodersByALead) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 60);
  for (std::size_t i = 0; i < 60; ++i) {
    hand.costs.modules[i % 2].stages[0].units[i].time.forward *= 5;  // of encoder, of LLM
  }
  const auto mean_slots = [&](int lead) {
    const Placement placement = placed(hand, {.num_slots = 12, .shape = kTriangle, .lead = lead});
    double sums[2] = {0, 0};
    for (std::size_t i = 0; i < 60; ++i) {
      sums[i % 2] += placement.llm_slot[i];
    }
    return std::pair(sums[0] / 30, sums[1] / 30);  // of heavy encoder work, of heavy LLM work
  };
  const auto [encoder, llm] = mean_slots(0);
  const auto [late_encoder, early_llm] = mean_slots(8);
  EXPECT_NEAR(encoder, llm, 0.5);
  EXPECT_GT(late_encoder, encoder + 2);
  EXPECT_LT(early_llm, llm - 2);
}

TEST(PlaceInSlots, PutsAnOversizedSampleInTheMiddle) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 20);
  hand.costs.modules[0].stages[0].units[5].time.forward = nanoseconds{10'000};
  const Placement placement = placed(hand, {.num_slots = 5, .shape = kTriangle});
  EXPECT_EQ(placement.llm_slot[5], 2);
}

TEST(PlaceInSlots, KeepsSlotsForTextOnlySamples) {
  std::vector<oracle::HandSample> samples(12, {0, {{0}}});
  samples.resize(24, {0, {{}}});
  const oracle::HandCase hand = oracle::make_hand_case({1, 1}, 1, samples);
  const Placement placement =
      placed(hand, {.num_slots = 6, .shape = kTriangle, .text_front = 2, .text_back = 1});
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_GE(placement.llm_slot[i], 2);
    EXPECT_LE(placement.llm_slot[i], 4);
  }
  EXPECT_NE(std::count(placement.llm_slot.begin() + 12, placement.llm_slot.end(), 0), 0);
}

TEST(PlaceInSlots, SpreadsSegmentsOverEarlierSlotsWithinTheLimit) {
  const oracle::HandCase hand =
      oracle::make_hand_case({1, 1}, 1, {{0, {{0, 0, 0, 0, 0, 0}}}, {0, {{}}}, {0, {{}}}});
  Placement placement = placed(hand, {.num_slots = 5, .spread_segments = true});
  const int llm_slot = placement.llm_slot[0];
  ASSERT_EQ(llm_slot, 2);
  const std::vector<int>& slots = placement.encoder_slot[0];
  EXPECT_LT(*std::min_element(slots.begin(), slots.end()), llm_slot);
  EXPECT_LE(*std::max_element(slots.begin(), slots.end()), llm_slot);
  placement = placed(hand, {.num_slots = 5, .spread_segments = true}, 1);
  EXPECT_EQ(*std::min_element(placement.encoder_slot[0].begin(), placement.encoder_slot[0].end()),
            llm_slot - 1);
}

TEST(PlaceInSlots, SpreadsHeavySamplesOverTheSlotsBefore) {
  std::vector<oracle::HandSample> samples = {{0, {{0, 0, 0, 0, 0, 0}}}};
  samples.resize(10, {0, {{0, 0}}});
  oracle::HandCase hand = oracle::make_hand_case({1, 1}, 1, samples);
  for (std::size_t unit = 0; unit < 6; ++unit) {
    hand.costs.modules[0].stages[0].units[unit].time.forward = nanoseconds{20'000};
  }
  for (const int within : {1, 2}) {
    const Placement placement = placed(hand, {.num_slots = 5, .spread_heavy = within});
    const std::vector<int>& slots = placement.encoder_slot[0];
    const int own = placement.llm_slot[0];
    ASSERT_GE(own, 2);
    EXPECT_EQ(*std::min_element(slots.begin(), slots.begin() + 6), own - within);
    EXPECT_LE(*std::max_element(slots.begin(), slots.begin() + 6), own);
    for (std::size_t unit = 6; unit < slots.size(); ++unit) {  // of samples lighter than a slot
      EXPECT_EQ(slots[unit], placement.llm_slot[1 + (unit - 6) / 2]);
    }
  }
  const Placement forbidden = placed(hand, {.num_slots = 5, .spread_heavy = 2}, 0);
  EXPECT_EQ(forbidden.encoder_slot, placed(hand, {.num_slots = 5}).encoder_slot);
}

TEST(RuleFor, LeavesSlotsForSegmentsWhereSamplesGetFewer) {
  const SlotRule rule{.num_slots = 8, .text_front = 2, .text_back = 2};
  EXPECT_EQ(rule_for(rule, 9), rule);
  EXPECT_EQ(rule_for(rule, 5).num_slots, 5);
  EXPECT_EQ(rule_for(rule, 5).text_back, 2);
  EXPECT_EQ(rule_for(rule, 4).num_slots, 4);
  EXPECT_EQ(rule_for(rule, 4).text_front + rule_for(rule, 4).text_back, 0);
}

}  // namespace
}  // namespace entrain
