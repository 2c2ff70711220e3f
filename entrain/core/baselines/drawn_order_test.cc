#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/baselines/policies.h"

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

std::vector<int> order(const Placement& placement) {
  std::vector<int> result;
  for (const std::vector<int>& samples : placement.samples) {
    result.insert(result.end(), samples.begin(), samples.end());
  }
  return result;
}

TEST(RandomPolicy, DependsOnSeedAndStepAlone) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 16);
  hand.plan.replicas = 2;
  AssignRequest request{.plan = &hand.plan, .costs = &hand.costs};
  const std::vector<int> first = order(random_policy(request));
  EXPECT_EQ(order(random_policy(request)), first);
  request.step = 1;
  EXPECT_NE(order(random_policy(request)), first);
  request.step = 0;
  request.seed = 1;
  EXPECT_NE(order(random_policy(request)), first);
  std::vector<int> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);
  }
}

}  // namespace
}  // namespace entrain
