#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/baselines/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// Samples of (encoder work, LLM work).
oracle::HandCase with_work(const std::vector<std::pair<int, int>>& work) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, static_cast<int>(work.size()));
  for (std::size_t sample = 0; sample < work.size(); ++sample) {
    hand.costs.modules[0].stages[0].units[sample].time = {nanoseconds{work[sample].first}, {}, {}};
    hand.costs.modules[1].stages[0].units[sample].time = {nanoseconds{work[sample].second}, {}, {}};
  }
  return hand;
}

Placement paper_placement(const oracle::HandCase& hand) {
  return entrain_paper_policy({.plan = &hand.plan, .costs = &hand.costs});
}

// LLM works 2, 10, 1, 9, 3, 8: their lower median is 3, so samples 1, 3 and 5 are coarse.
// Coarse by encoder work: 1 (6) to the first slot, 3 (4) and 5 (2) to the second: 6 and 6.
// Fine: 0 (8) to the first, which has fewer samples; 2 (5) and 4 (3) to the second: 14 and 14.
// LLM work: 12 and 21. The second is overloaded and hands over 4 of 4.5: samples 2 and 4.
const std::vector<std::pair<int, int>> kSix = {{8, 2}, {6, 10}, {5, 1}, {4, 9}, {3, 3}, {2, 8}};

TEST(EntrainPaperPolicy, FillsStrataThenDefersByOneSlot) {
  oracle::HandCase hand = with_work(kSix);
  hand.plan.num_slots = 2;
  const Placement placement = paper_placement(hand);
  EXPECT_EQ(placement.num_slots, std::vector<int>{2});
  EXPECT_EQ(placement.encoder_slot[0], (std::vector<int>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{1, 1, 1, 0, 1, 0}));
}

TEST(EntrainPaperPolicy, RespectsADeferralLimitOfNone) {
  oracle::HandCase hand = with_work(kSix);
  hand.plan.num_slots = 2;
  hand.plan.limits.max_deferral = 0;
  const Placement placement = paper_placement(hand);
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(placement.encoder_slot[0], placement.llm_slot);
}

TEST(EntrainPaperPolicy, CutsTheSlotsToWhatTheLargestSampleAllows) {
  oracle::HandCase hand = with_work({{8, 1}, {4, 1}, {3, 1}, {2, 1}});  // 17 / 8
  EXPECT_EQ(paper_placement(hand).num_slots, std::vector<int>{2});
  hand.plan.num_slots = 1;
  EXPECT_EQ(paper_placement(hand).num_slots, std::vector<int>{1});
}

TEST(EntrainPaperPolicy, DealsByEncoderWorkToTheLeastLlmWorkAndEquallyMany) {
  oracle::HandCase hand = with_work({{6, 3}, {9, 1}, {8, 10}, {7, 3}});
  hand.plan.replicas = 2;
  // 1 | 10, then 1 + 3, which is full with two samples.
  EXPECT_EQ(paper_placement(hand).samples, (std::vector<std::vector<int>>{{1, 3}, {2, 0}}));
}

// Samples 0 and 4 have encoder work; the others are dealt by falling LLM work: 9 to the slot with
// 0, 5 to the one with 6, 4 to the one with 9. By encoder work all three would lie in one slot.
TEST(EntrainPaperPolicy, DealsTextOnlySamplesByLlmWork) {
  oracle::HandCase hand = with_work({{8, 6}, {0, 4}, {0, 9}, {0, 5}, {8, 0}});
  hand.plan.num_slots = 2;
  hand.plan.limits.max_deferral = 0;
  const Placement placement = paper_placement(hand);
  EXPECT_EQ(placement.samples, (std::vector<std::vector<int>>{{0, 4, 2, 3, 1}}));
  EXPECT_EQ(placement.llm_slot[1], placement.llm_slot[2]);
  EXPECT_EQ(placement.llm_slot[0], placement.llm_slot[3]);
  EXPECT_NE(placement.llm_slot[0], placement.llm_slot[2]);
}

TEST(EntrainPaperPolicy, PutsTheOddSlotLast) {
  // Equal encoder work: a slot each. By LLM work 9, 5 | 4: order 9, 4, 5.
  oracle::HandCase hand = with_work({{1, 4}, {1, 9}, {1, 5}});
  EXPECT_EQ(paper_placement(hand).llm_slot, (std::vector<int>{1, 0, 2}));
}

TEST(EntrainPaperPolicy, KeepsAllSlotsWithoutEncoderWork) {
  oracle::HandCase hand = oracle::make_plain_case({1}, 5);
  hand.plan.num_slots = 3;
  EXPECT_EQ(paper_placement(hand).num_slots, std::vector<int>{3});
}

}  // namespace
}  // namespace entrain
