#include "entrain/core/baselines/lpt.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/baselines/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// The least largest load of `work` in `num_bins` bins, by trying everything.
std::int64_t least_makespan(const std::vector<std::int64_t>& work,
                            std::size_t next,
                            std::vector<std::int64_t>& load) {
  if (next == work.size()) {
    return *std::max_element(load.begin(), load.end());
  }
  std::int64_t best = -1;
  for (std::int64_t& bin : load) {
    bin += work[next];
    const std::int64_t result = least_makespan(work, next + 1, load);
    bin -= work[next];
    best = best < 0 ? result : std::min(best, result);
  }
  return best;
}

TEST(LeastLoaded, PrefersFewMembersThenTheFirst) {
  LeastLoaded bins(3);
  bins.add(0, 0);
  EXPECT_EQ(bins.least(), 1);
  bins.add(1, 2);
  bins.add(2, 1);
  EXPECT_EQ(bins.least(), 0);
  bins.close(0);
  EXPECT_EQ(bins.least(), 2);
}

TEST(Falling, KeepsTheOrderOfEqualWork) {
  EXPECT_EQ(falling({1, 3, 2, 3}), (std::vector<int>{1, 3, 2, 0}));
  EXPECT_EQ(falling({1, 3, 2, 3}, {3, 0, 1}), (std::vector<int>{3, 1, 0}));
}

TEST(LptPlacement, BalancesReplicasThenSlots) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 6);
  hand.plan.replicas = 2;
  hand.plan.num_slots = 2;
  // Loads of the replicas: 9 and 7, 9 and 13, 14 and 13, 14 and 16, 15 and 16.
  const Placement placement =
      lpt_placement({.plan = &hand.plan, .costs = &hand.costs}, {5, 9, 1, 7, 3, 6});
  EXPECT_EQ(placement.samples, (std::vector<std::vector<int>>{{1, 0, 2}, {3, 5, 4}}));
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{1, 0, 1, 0, 1, 1}));
  EXPECT_EQ(placement.encoder_slot[0], placement.llm_slot);
}

TEST(LptPlacement, KeepsGrahamsBound) {
  Rng rng(5, 1);
  for (int i = 0; i < 300; ++i) {
    const int bins = 2 + static_cast<int>(rng.below(2));
    oracle::HandCase hand = oracle::make_plain_case({1, 1}, 8);
    hand.plan.replicas = bins;
    hand.plan.num_slots = 1;
    std::vector<std::int64_t> work;
    for (int sample = 0; sample < 8; ++sample) {
      work.push_back(static_cast<std::int64_t>(rng.below(30)));
    }
    const Placement placement = lpt_placement({.plan = &hand.plan, .costs = &hand.costs}, work);
    std::int64_t largest = 0;
    for (const std::vector<int>& samples : placement.samples) {
      std::int64_t load = 0;
      for (const int sample : samples) {
        load += work[static_cast<std::size_t>(sample)];
      }
      ASSERT_FALSE(samples.empty());
      largest = std::max(largest, load);
    }
    std::vector<std::int64_t> load(static_cast<std::size_t>(bins), 0);
    const std::int64_t least = least_makespan(work, 0, load);
    ASSERT_GE(largest, least);
    ASSERT_LE(3 * bins * largest, (4 * bins - 1) * least);
  }
}

// Where samples lie when 0 and 1 weigh most in `module`, and 0, 2 and 3 in the other one.
std::vector<int> slots_by(Placement (*policy)(const AssignRequest&), std::size_t module) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 4);
  hand.plan.num_slots = 2;
  for (const std::size_t sample : {0U, 1U}) {
    hand.costs.modules[module].stages[0].units[sample].time.backward_input = nanoseconds{1000};
  }
  for (const std::size_t sample : {0U, 2U, 3U}) {
    hand.costs.modules[1 - module].stages[0].units[sample].time.forward = nanoseconds{9000};
  }
  return policy({.plan = &hand.plan, .costs = &hand.costs}).llm_slot;
}

TEST(LptPolicies, BalanceTheirModuleAndIgnoreTheOther) {
  EXPECT_EQ(slots_by(encoder_lpt_policy, 0), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(slots_by(llm_lpt_policy, 1), (std::vector<int>{0, 1, 0, 1}));
}

TEST(EncoderLptPolicy, CountsAllEncodersTogether) {
  // Sample 0 has two segments of vision, sample 1 one of each encoder, sample 2 none.
  oracle::HandCase hand = oracle::make_hand_case(
      {1, 1, 1}, 2, {{0, {{0, 0}, {}}}, {0, {{0}, {0}}}, {0, {{}, {}}}, {0, {{0}, {}}}});
  const Placement placement = encoder_lpt_policy({.plan = &hand.plan, .costs = &hand.costs});
  EXPECT_EQ(placement.llm_slot, (std::vector<int>{0, 1, 1, 0}));
}

}  // namespace
}  // namespace entrain
