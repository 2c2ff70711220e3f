#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/baselines/policies.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

Placement orchmllm_placement(const oracle::HandCase& hand) {
  return orchmllm_policy({.plan = &hand.plan, .costs = &hand.costs});
}

TEST(OrchmllmPolicy, AddsUpTheSharesOfAllPhases) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 4);
  hand.plan.replicas = 2;
  // Encoder shares 0.7, 0.1, 0.1, 0.1 and LLM shares 0.1, 0.7, 0.1, 0.1, though the LLM's times are
  // 1,000 times the encoder's: one heavy sample each.
  for (const std::size_t sample : {0U, 1U, 2U, 3U}) {
    hand.costs.modules[0].stages[0].units[sample].time = {nanoseconds{sample == 0 ? 7 : 1}, {}, {}};
    hand.costs.modules[1].stages[0].units[sample].time = {
        nanoseconds{sample == 1 ? 7000 : 1000}, {}, {}};
  }
  EXPECT_EQ(orchmllm_placement(hand).samples, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
}

TEST(OrchmllmPolicy, BreaksTiesByTheQuadraticPart) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 4);
  hand.plan.replicas = 2;
  hand.costs.modules[0].tokens[0] = 100;
  EXPECT_EQ(orchmllm_placement(hand).samples, (std::vector<std::vector<int>>{{0, 3}, {1, 2}}));
}

TEST(OrchmllmPolicy, LeavesTheSlotsInDrawnOrder) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 4);
  hand.plan.num_slots = 2;
  hand.costs.modules[1].stages[0].units[3].time.forward = nanoseconds{1000};
  EXPECT_EQ(orchmllm_placement(hand).llm_slot, (std::vector<int>{0, 0, 1, 1}));
}

}  // namespace
}  // namespace entrain
