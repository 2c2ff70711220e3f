#include "entrain/core/assigner/ways.h"

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// One encoder stage, two LLM stages: 10 ns forward and 20 ns backward each.
TEST(Ways, GoThroughEncoderAndLlmAndBack) {
  const oracle::HandCase hand = oracle::make_plain_case({1, 2}, 2);
  const Ways ways(hand.plan, hand.costs, BoundMode::kFused);
  EXPECT_EQ(ways.sample(0).encoder_forward, 10);
  EXPECT_EQ(ways.sample(0).encoder_backward, 20);
  EXPECT_EQ(ways.forward_until(1, 2, 0), 20);
  EXPECT_EQ(ways.forward_from(1, 1, 0), 10);
  EXPECT_EQ(ways.way_back(1, 2, 0).length, 40);
  EXPECT_EQ(ways.llm_round_trip(0, 20), 20 + 40 + 20);
}

TEST(Ways, FollowAnInputGradientByItsWeightHalf) {
  oracle::HandCase hand = oracle::make_plain_case({1, 2}, 1);
  hand.costs.modules[1].stages[0].units[0].time = {
      nanoseconds{10}, nanoseconds{3}, nanoseconds{70}};
  hand.costs.modules[1].stages[1].units[0].time = {nanoseconds{10}, nanoseconds{5}, nanoseconds{1}};
  const WayBack way = Ways(hand.plan, hand.costs, BoundMode::kSplitInputs).way_back(1, 2, 0);
  EXPECT_EQ(way.length, 5 + 3);
  EXPECT_EQ(way.latest, 5 + 3 + 70);
  EXPECT_EQ(way.latest_with(100), 108);
}

TEST(Ways, EndBackwardWhereNothingIsTrainable) {
  oracle::HandCase hand = oracle::make_plain_case({1, 2}, 1);
  oracle::set_trainable(hand, 0, false);
  EXPECT_EQ(Ways(hand.plan, hand.costs, BoundMode::kFused).first_llm_backward(0), 0);
  hand.costs.modules[1].stages[0].trainable = false;
  const Ways ways(hand.plan, hand.costs, BoundMode::kFused);
  EXPECT_FALSE(ways.sample(0).llm_backward);
  EXPECT_EQ(ways.first_llm_backward(0), 1);
  EXPECT_EQ(ways.way_back(1, 2, 0).length, 20);
}

TEST(Ways, CountReductionsOfReplicasAndTheSlowestOptimizer) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 1);
  hand.costs.modules[0].stages[0].reduce = nanoseconds{7};
  hand.costs.modules[1].stages[0].optimizer = nanoseconds{5};
  EXPECT_EQ(Ways(hand.plan, hand.costs, BoundMode::kFused).reduce(0), 0);
  hand.plan.replicas = 2;
  const Ways ways(hand.plan, hand.costs, BoundMode::kFused);
  EXPECT_EQ(ways.reduce(0), 7);
  EXPECT_EQ(ways.slowest_optimizer(), 5);
}

}  // namespace
}  // namespace entrain
