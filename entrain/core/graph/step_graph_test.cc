// placement_graph_test.cc compares the search's own graphs with these.
#include "entrain/core/graph/step_graph.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

struct Built {
  explicit Built(const oracle::RandomCase& of)
      : groups(build_groups(of.assignment.replicas[0], of.costs)),
        stages(stage_graph(of.plan, of.costs.link)),
        graph(replica_graph(stages, of.costs, groups)) {}

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
        ASSERT_EQ(unit.output_bytes, output_bytes(of.costs, key, source));
        ASSERT_EQ(unit.recompute, recompute_bytes(of.costs, key, source));
        ASSERT_EQ(nanoseconds{unit.weight_half()},
                  operation_time(of.costs, OperationKind::kBackwardWeight, key, source));
        std::int64_t kept = 0;
        for (const WorkItem& item : source.items) {
          kept += key_value_bytes(of.costs, stage, item);
        }
        ASSERT_EQ(unit.key_value_bytes, group.module == built.stages.llm ? kept : 0);
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

std::vector<int> list_of(std::span<const int> values) {
  return {values.begin(), values.end()};
}

// Against the definition in program.h, unit by unit.
TEST(ReplicaGraph, ListsTheInputsOfEveryUnit) {
  constexpr std::uint64_t kSeed = 88;
  int links = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    Rng rng(kSeed, i);
    const Built built(oracle::make_random_case(rng, {.chunks = i % 2 == 0}));
    const ReplicaGraph& graph = built.graph;
    Program program;
    program.lanes.resize(built.stages.lanes.size());
    for (const StageGraph::Stage& stage : built.stages.stages) {
      program.lanes[static_cast<std::size_t>(stage.lane)].push_back({stage.module, stage.stage});
    }
    for (int module = 0; module <= built.stages.llm; ++module) {
      program.num_stages.push_back(built.stages.num_stages(module));
    }
    program.replicas.resize(1);
    program.replicas[0].groups = built.groups;
    const auto numbers = [&](const std::vector<UnitKey>& keys) {
      std::vector<int> result;
      for (const UnitKey& key : keys) {
        result.push_back(graph.number(key));
      }
      return result;
    };
    for (int number = 0; number < static_cast<int>(graph.groups.size()); ++number) {
      const GraphGroup& group = graph.group(number);
      const bool llm = group.module == built.stages.llm;
      std::vector<int> forward = llm ? list_of(graph.sources_of(number)) : std::vector<int>();
      const std::vector<int> earlier = list_of(graph.earlier_of(number));
      forward.insert(forward.end(), earlier.begin(), earlier.end());
      ASSERT_EQ(forward, numbers(forward_inputs(program, 0, graph.key(number, 0))))
          << "seed " << kSeed << " case " << i;
      const int last = built.stages.num_stages(group.module) - 1;
      std::vector<int> backward = list_of(graph.served_by(group));
      const std::vector<int> later = list_of(graph.later_of(number));
      backward.insert(backward.end(), later.begin(), later.end());
      ASSERT_EQ(backward, numbers(backward_inputs(program, 0, graph.key(number, last))))
          << "seed " << kSeed << " case " << i;
      links += static_cast<int>(earlier.size());
    }
  }
  EXPECT_GT(links, 300);
}

// Two encoder stages and one LLM stage; encoder slot 0 serves LLM slots 0 and 1, slot 1 slot 1.
struct SmallStep {
  SmallStep() : costs(oracle::make_plain_case({2, 1}, 2).costs) {
    using oracle::group_of_items;
    program.lanes = {{{0, 0}}, {{0, 1}, {1, 0}}};
    program.num_stages = {2, 1};
    ReplicaProgram& replica = program.replicas.emplace_back();
    replica.groups = {
        {{group_of_items({{.sample = 0, .segment = 0}}, {0, 1})},
         {group_of_items({{.sample = 1, .segment = 0}}, {1})}},
        {{group_of_items({{.sample = 0}}, {0})}, {group_of_items({{.sample = 1}}, {1})}}};
    for (auto& slot : replica.groups[0]) {
      slot[0].takes_backward = {0, 1};
    }
  }
  StepCosts costs;
  Program program;
};

TEST(StageGraph, OfAProgramKnowsLanesAndWhatCrosses) {
  SmallStep step;
  const StageGraph stages = stage_graph(step.program, {});
  EXPECT_EQ(stages.of(0, 1).lane, 1);
  EXPECT_EQ(stages.llm_first_lane, 1);
  EXPECT_TRUE(stages.of(0, 0).crosses);
  EXPECT_FALSE(stages.of(0, 1).crosses);
  EXPECT_FALSE(stages.of(1, 0).crosses);
  EXPECT_TRUE(stages.feeds_llm(stages.of(0, 1)));
  EXPECT_FALSE(stages.feeds_llm(stages.of(0, 0)));
  EXPECT_FALSE(stages.feeds_llm(stages.of(1, 0)));
  step.program.lanes[1].pop_back();
  EXPECT_THROW(stage_graph(step.program, {}), InvalidInput);
}

TEST(StepGraph, RefusesAChannelBetweenOtherLanesThanItsStages) {
  SmallStep step;
  step.program.replicas[0].channels = {{0, 1, {0, 0}, {0, 1}, false}};
  EXPECT_NO_THROW(step_graph(step.program, step.costs));
  step.program.replicas[0].channels[0].gradient = true;
  EXPECT_THROW(step_graph(step.program, step.costs), InvalidInput);
}

TEST(ReplicaGraph, NumbersUnitsGroupByGroup) {
  const SmallStep step;
  const auto [stages, replicas] = step_graph(step.program, step.costs);
  const ReplicaGraph& graph = replicas[0];
  EXPECT_EQ(graph.num_units, 6);
  EXPECT_EQ(graph.unit(graph.checked_number(stages, {0, 1, 0, 0}), 1), 1);
  EXPECT_EQ(graph.unit(graph.checked_number(stages, {0, 0, 1, 0}), 0), 2);
  EXPECT_EQ(graph.unit(graph.checked_number(stages, {1, 0, 1, 0}), 0), 5);
  EXPECT_EQ(graph.key(1, 1), (UnitKey{0, 1, 1, 0}));
  EXPECT_EQ(graph.group(0).first_backward, 1);
  for (const UnitKey& unknown : std::vector<UnitKey>{
           {2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 2, 0}, {0, 0, 0, 1}, {-1, -1, -1, -1}}) {
    EXPECT_THROW((void)graph.checked_number(stages, unknown), InvalidInput);
  }
  EXPECT_EQ(list_of(graph.sources_of(2)), (std::vector<int>{0}));
  EXPECT_EQ(list_of(graph.sources_of(3)), (std::vector<int>{0, 1}));
}

TEST(ReplicaGraph, RefusesGroupsThatAreNotThere) {
  SmallStep step;
  step.program.replicas[0].groups[0][0][0].llm_slots = {0, 2};
  EXPECT_THROW(step_graph(step.program, step.costs), InternalError);
}

// Encoder slot 0: parts 0→1 and 0→2; slot 1: part 1→1. LLM slots 1 and 2.
TEST(ReplicaGraph, ListsEncoderGroupsAsTheyOpenAndAreReleased) {
  const oracle::HandCase hand =
      oracle::make_hand_case({2, 3}, 3, {{1, {{0}}}, {2, {{0}}}, {1, {{1}}}});
  const ReplicaGraph graph = replica_graph(stage_graph(hand.plan, {}),
                                           hand.costs,
                                           build_groups(hand.assignment.replicas[0], hand.costs));
  EXPECT_EQ(opening_order(graph), (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(releasing_order(graph), (std::vector<int>{0, 2, 1}));
}

// Sample 0 in LLM slots 0 and 2, sample 1 in slots 1 and 2, their images in encoder slot 0.
TEST(ReplicaGraph, ReleasesChunksWithTheSlotInWhichTheirSampleEnds) {
  oracle::HandCase hand =
      oracle::make_hand_case({1, 1}, 3, {{0, {{0}}}, {1, {{0}}}, {0, {{0}}}, {1, {{}}}});
  cut_sample(hand, 0, {0, 2}, {0, 6});
  cut_sample(hand, 1, {1, 2}, {0, 6});
  const ReplicaGraph graph = replica_graph(stage_graph(hand.plan, {}),
                                           hand.costs,
                                           build_groups(hand.assignment.replicas[0], hand.costs));
  // Encoder groups: 0 for sample 2, 1 for sample 0, 2 for sample 1. LLM groups: 3 and 4 in slot 0,
  // 5 and 6 in slot 1, 7 in slot 2.
  EXPECT_EQ(graph.backward_order, (std::vector<int>{0, 2, 1, 3, 5, 7, 6, 4}));
  EXPECT_EQ(releasing_order(graph), (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(opening_order(graph), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(graph.group(4).turn, 2);
  EXPECT_EQ(graph.group(1).completing, 0);
  EXPECT_EQ(list_of(graph.ended_of(7)), (std::vector<int>{4, 6}));
  EXPECT_EQ(list_of(graph.earlier_of(7)), (std::vector<int>{4, 6}));
  EXPECT_EQ(list_of(graph.later_of(4)), (std::vector<int>{7}));
  EXPECT_TRUE(graph.ended_of(6).empty());
  EXPECT_TRUE(graph.later_of(0).empty());
}

}  // namespace
}  // namespace entrain
