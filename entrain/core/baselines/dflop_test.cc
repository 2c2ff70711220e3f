#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/baselines/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

oracle::HandCase with_times(const std::vector<int>& encoder, const std::vector<int>& llm) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, static_cast<int>(llm.size()));
  for (std::size_t sample = 0; sample < llm.size(); ++sample) {
    hand.costs.modules[0].stages[0].units[sample].time = {nanoseconds{encoder[sample]}, {}, {}};
    hand.costs.modules[1].stages[0].units[sample].time = {nanoseconds{llm[sample]}, {}, {}};
  }
  return hand;
}

Placement dflop_placement(const oracle::HandCase& hand) {
  return dflop_policy({.plan = &hand.plan, .costs = &hand.costs});
}

TEST(DflopPolicy, BoundsBothCostsOfABin) {
  oracle::HandCase hand = with_times({10, 10, 0, 0}, {0, 0, 10, 10});
  hand.plan.num_slots = 2;
  const Placement placement = dflop_placement(hand);
  EXPECT_NE(placement.llm_slot[0], placement.llm_slot[1]);
  EXPECT_NE(placement.llm_slot[2], placement.llm_slot[3]);
  EXPECT_EQ(placement.encoder_slot[0], placement.llm_slot);
}

TEST(DflopPolicy, SolvesBinsOfAllReplicasTogether) {
  // 6 + 4, 5 + 5, 7 + 3, 8 + 2: the only way to keep every bin at 10.
  oracle::HandCase hand = with_times({6, 2, 5, 3, 8, 7, 5, 4}, std::vector<int>(8, 1));
  hand.plan.replicas = 2;
  hand.plan.num_slots = 2;
  const Placement placement = dflop_placement(hand);
  EXPECT_EQ(placement.num_slots, (std::vector<int>{2, 2}));
  for (int replica = 0; replica < 2; ++replica) {
    std::vector<int> loads(2, 0);
    int first = -1;
    for (const int sample : placement.samples[static_cast<std::size_t>(replica)]) {
      const auto s = static_cast<std::size_t>(sample);
      loads[static_cast<std::size_t>(placement.llm_slot[s])] +=
          static_cast<int>(hand.costs.modules[0].stages[0].units[s].time.forward.count());
      if (placement.llm_slot[s] == 0 && first < 0) {
        first = sample;
      }
    }
    EXPECT_EQ(loads, (std::vector<int>{10, 10}));
    // The slot whose first sample was drawn first comes first.
    EXPECT_EQ(first,
              *std::min_element(placement.samples[static_cast<std::size_t>(replica)].begin(),
                                placement.samples[static_cast<std::size_t>(replica)].end()));
  }
}

TEST(DflopPolicy, HasNoMoreBinsThanSamples) {
  oracle::HandCase hand = with_times({1, 2, 3, 4, 5}, {1, 1, 1, 1, 1});
  hand.plan.replicas = 2;
  hand.plan.num_slots = 8;
  EXPECT_EQ(dflop_placement(hand).num_slots, (std::vector<int>{2, 2}));
}

}  // namespace
}  // namespace entrain
