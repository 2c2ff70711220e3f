#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/baselines/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

oracle::HandCase with_encoder_times(const std::vector<int>& times) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, static_cast<int>(times.size()));
  for (std::size_t sample = 0; sample < times.size(); ++sample) {
    hand.costs.modules[0].stages[0].units[sample].time = {nanoseconds{times[sample]}, {}, {}};
  }
  return hand;
}

Placement disttrain_placement(const oracle::HandCase& hand) {
  return disttrain_policy({.plan = &hand.plan, .costs = &hand.costs});
}

TEST(DisttrainPolicy, DealsByEncoderWorkAtMostAnEvenShare) {
  oracle::HandCase hand = with_encoder_times({100, 1, 2, 3, 4, 5});
  hand.plan.replicas = 2;
  // 100 | 5, 4, 3: full, though its work is less; the rest joins the oversized sample.
  EXPECT_EQ(disttrain_placement(hand).samples,
            (std::vector<std::vector<int>>{{0, 1, 2}, {3, 4, 5}}));
}

TEST(DisttrainPolicy, TakesFourSamplesAMicrobatchWhateverThePlanSays) {
  oracle::HandCase hand = with_encoder_times(std::vector<int>(10, 10));
  hand.plan.num_slots = 1;
  const Placement placement = disttrain_placement(hand);
  EXPECT_EQ(placement.num_slots, std::vector<int>{3});
  std::vector<int> counts(3, 0);
  for (const int slot : placement.llm_slot) {
    ++counts[static_cast<std::size_t>(slot)];
  }
  std::sort(counts.begin(), counts.end());
  EXPECT_EQ(counts, (std::vector<int>{2, 4, 4}));
  EXPECT_EQ(placement.encoder_slot[0], placement.llm_slot);
}

TEST(DisttrainPolicy, OrdersMicrobatchesBySizeAndInterval) {
  // Microbatches of 40, 4, 80 and 8 ns in the encoder's stage; the smallest first, the next last.
  // The first gradient comes after 4 · (10 + 20) ns in the LLM: 80 is closest.
  const Placement placement = disttrain_placement(
      with_encoder_times({10, 10, 10, 10, 1, 1, 1, 1, 20, 20, 20, 20, 2, 2, 2, 2}));
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3}));
}

TEST(DisttrainPolicy, WorksWithoutAnEncoder) {
  oracle::HandCase hand = oracle::make_plain_case({2}, 9);
  hand.plan.replicas = 2;
  const Placement placement = disttrain_placement(hand);
  EXPECT_EQ(placement.samples[0].size(), 5U);
  EXPECT_EQ(placement.num_slots, (std::vector<int>{2, 1}));
}

}  // namespace
}  // namespace entrain
