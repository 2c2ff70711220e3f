// assigner/placement_graph_test.cc compares the search's own graphs with these.
#include "entrain/core/schedule/replica_graph.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

struct Built {
  explicit Built(const oracle::RandomCase& of)
      : groups(build_groups(of.assignment.replicas[0], of.costs)) {
    std::vector<int> num_stages;
    for (const ModulePlan& module : of.plan.modules) {
      num_stages.push_back(static_cast<int>(module.stages.size()));
    }
    stages = stage_graph(of.plan, of.costs.link);
    graph = replica_graph(stages, of.costs, groups, UnitTable(groups, num_stages));
  }

  std::vector<ModuleGroups> groups;
  StageGraph stages;
  ReplicaGraph graph;
};

TEST(StageGraph, CountsTheStagesThatFollow) {
  const oracle::HandCase hand = oracle::make_plain_case({2, 3}, 1);
  const StageGraph stages = stage_graph(hand.plan, {});
  std::vector<int> warm_ups;
  for (const StageGraph::Stage& stage : stages.stages) {
    warm_ups.push_back(stage.warm_up);
  }
  EXPECT_EQ(warm_ups, (std::vector<int>{4, 3, 2, 1, 0}));
  EXPECT_EQ(stages.first_stage, (std::vector<int>{0, 2, 5}));
  EXPECT_EQ(stages.llm_first_lane, 2);
  EXPECT_TRUE(stages.stages[1].crosses);
  EXPECT_FALSE(stages.stages[4].crosses) << "nothing leaves the loss";
}

// Times of a unit are those of its operation, launch constants included.
TEST(ReplicaGraph, HoldsTheTimesOfOperations) {
  for (int i = 0; i < 300; ++i) {
    Rng rng(20261128, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.chunks = i % 2 == 0;
    const oracle::RandomCase of = oracle::make_random_case(rng, options);
    const Built built(of);
    for (const GraphGroup& group : built.graph.groups) {
      const Group& source =
          built.groups[static_cast<std::size_t>(group.module)][static_cast<std::size_t>(group.slot)]
                      [static_cast<std::size_t>(group.group)];
      for (int stage = 0; stage < built.stages.num_stages(group.module); ++stage) {
        const UnitKey key{group.module, stage, group.slot, group.group};
        const int number = built.stages.first_stage[static_cast<std::size_t>(group.module)] + stage;
        const GraphUnit& unit = built.graph.cost(group, number);
        ASSERT_EQ(nanoseconds{unit.forward},
                  operation_time(of.costs, OperationKind::kForward, key, source));
        ASSERT_EQ(unit.activation_bytes, activation_bytes(of.costs, key, source));
        if (stage >= group.first_backward) {
          ASSERT_TRUE(source.takes_backward[static_cast<std::size_t>(stage)]);
          ASSERT_EQ(nanoseconds{unit.backward_input + unit.backward_weight},
                    operation_time(of.costs, OperationKind::kBackward, key, source));
        } else {
          ASSERT_FALSE(source.takes_backward[static_cast<std::size_t>(stage)]);
        }
      }
    }
  }
}

TEST(ReplicaGraph, OrdersBackwardsByTurnAndChunksFromTheLast) {
  for (int i = 0; i < 300; ++i) {
    Rng rng(20261129, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.chunks = true;
    const Built built(oracle::make_random_case(rng, options));
    const ReplicaGraph& graph = built.graph;
    std::vector<int> sorted = graph.backward_order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int> all(graph.groups.size());
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(sorted, all) << "every group once";
    for (std::size_t module = 0; module + 1 < graph.first_group.size(); ++module) {
      for (int n = graph.first_group[module] + 1; n < graph.first_group[module + 1]; ++n) {
        const auto& before = graph.groups[static_cast<std::size_t>(
            graph.backward_order[static_cast<std::size_t>(n - 1)])];
        const auto& after = graph.groups[static_cast<std::size_t>(
            graph.backward_order[static_cast<std::size_t>(n)])];
        ASSERT_LE(before.turn, after.turn);
        if (before.turn == after.turn) {
          ASSERT_GE(before.completing, after.completing);
        }
      }
    }
  }
}

}  // namespace
}  // namespace entrain
