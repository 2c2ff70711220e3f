#include "entrain/core/schedule/turns.h"

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

std::string order_of(const LaneOrders& orders, std::size_t lane) {
  std::string text;
  for (const Operation& operation : orders[lane]) {
    text += operation.kind == OperationKind::kForward ? 'F' : 'B';
    text += std::to_string(operation.unit.slot);
  }
  return text;
}

LaneOrders orders_with(const oracle::HandCase& hand_case, const std::vector<int>& warm_up) {
  const StageGraph stages = stage_graph(hand_case.plan, {});
  const ReplicaGraph graph = replica_graph(
      stages, hand_case.costs, build_groups(hand_case.assignment.replicas[0], hand_case.costs));
  return turn_order({hand_case.plan, hand_case.costs, stages, graph}, warm_up);
}

TEST(TurnOrder, RunsWarmUpThenTurns) {
  const LaneOrders orders = orders_with(oracle::make_plain_case({1, 1}, 4), {3, 1});
  EXPECT_EQ(order_of(orders, 0), "F0F1F2F3B0B1B2B3");
  EXPECT_EQ(order_of(orders, 1), "F0F1B0F2B1F3B2B3");
}

TEST(TurnOrder, CutsAWarmUpLongerThanTheStep) {
  const LaneOrders orders = orders_with(oracle::make_plain_case({1, 1}, 2), {9, 0});
  EXPECT_EQ(order_of(orders, 0), "F0F1B0B1");
  EXPECT_EQ(order_of(orders, 1), "F0B0F1B1");
}

TEST(TurnOrder, GivesASingleLaneTheLlmsWarmUp) {
  oracle::HandCase hand_case = oracle::make_plain_case({1, 1}, 2);
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}};
  EXPECT_EQ(order_of(orders_with(hand_case, {5, 0}), 0), "F0F0B0B0F1F1B1B1");
  EXPECT_EQ(order_of(orders_with(hand_case, {5, 1}), 0), "F0F0F1F1B0B0B1B1");
}

}  // namespace
}  // namespace entrain
