#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using oracle::TwoLanes;

TEST(MemoryOverTime, KeepsASplitBackwardsActivationsUntilTheWeightHalf) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B0 I0 <B1 I1 W0 W1", "<F0 <F1 F0 I0 >B0 F1 B1 >B1 W0");
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 0),
            (std::vector<std::int64_t>{100, 100, 200, 200, 200, 200, 200, 200, 200, 100}));
  // The LLM's features go with the input half.
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 1),
            (std::vector<std::int64_t>{10, 20, 120, 120, 110, 210, 210, 100, 100}));
  EXPECT_EQ(simulate(lanes.program, lanes.costs).lanes[0][1].peak_bytes, 210);
}

// Both slots bring back 30 bytes a layer at a time, 50 in all. The whole backward of slot 0 has its
// largest layer's beside two slots' activations; the split one of slot 1 keeps all until its weight
// half.
TEST(MemoryOverTime, BringsRecomputedLayersBackInBackward) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 I1 W1", "<F0 F0 B0 >B0 <F1 F1 B1 >B1");
  for (UnitCost& unit : lanes.costs.modules[0].stages[0].units) {
    unit.recompute = {50, 30};
  }
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 0),
            (std::vector<std::int64_t>{100, 100, 200, 200, 200, 230, 100, 150, 150}));
  EXPECT_EQ(simulate(lanes.program, lanes.costs).lanes[0][0].peak_bytes, 230);
  lanes.program.replicas[0].groups[0][0][0].takes_backward = {0};
  lanes.program.replicas[0].lanes[0].resize(1);
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 0), (std::vector<std::int64_t>{100}))
      << "nothing to bring back";
}

TEST(MemoryTimeline, StepsWhereOperationsStartAndEnd) {
  const TwoLanes lanes = oracle::two_slots_with_link();
  const Timeline timeline = simulate(lanes.program, lanes.costs, {.events = true});
  const auto steps = [](std::vector<std::pair<int, std::int64_t>> pairs) {
    std::vector<MemoryStep> result;
    for (const auto& [time, bytes] : pairs) {
      result.push_back({std::chrono::nanoseconds{time}, bytes});
    }
    return result;
  };
  const auto memory = memory_timeline(lanes.program, lanes.costs, timeline);
  ASSERT_EQ(memory.size(), 1U);
  ASSERT_EQ(memory[0].size(), 2U);
  // Forwards 0-10 and 10-20, backwards 66-86 and 96-116.
  EXPECT_EQ(memory[0][0], steps({{0, 100}, {10, 200}, {86, 100}, {116, 0}}));
  // Features of 10 bytes are there from the receive: at the start and behind the backward at 53.
  EXPECT_EQ(memory[0][1], steps({{0, 10}, {23, 110}, {53, 0}, {53, 10}, {53, 110}, {83, 0}}));
}

TEST(MemoryTimeline, HasNoStepsWhereTheTimelineHasNoEvents) {
  const TwoLanes lanes = oracle::two_slots_with_link();
  const auto memory =
      memory_timeline(lanes.program, lanes.costs, simulate(lanes.program, lanes.costs));
  EXPECT_TRUE(memory[0][0].empty());
  EXPECT_TRUE(memory[0][1].empty());
}

TEST(MemoryOverTime, FreesWhatTakesNoBackwardWithItsForward) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1", "<F0 F0 <F1 F1");
  for (auto& module : lanes.program.replicas[0].groups) {
    for (auto& slot : module) {
      slot[0].takes_backward = {0};
    }
  }
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 0),
            (std::vector<std::int64_t>{100, 0, 100, 0}));
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 1),
            (std::vector<std::int64_t>{10, 110, 10, 110}));
}

// One LLM lane; a sample in chunks of 6, 3 and 3 tokens in slots 0 to 2, 4 bytes of keys and values
// a token: 24 and 12 that others read, chunks of 50, 25 and 25 bytes.
struct ThreeChunks {
  ThreeChunks() : hand_case(oracle::make_hand_case({1}, 3, {{0, {}}})) {
    oracle::cut_sample(hand_case, 0, {0, 1, 2}, {0, 6, 9});
    hand_case.costs.modules[0].stages[0].key_value_bytes_per_token = 4;
    program.lanes = {{{0, 0}}};
    program.num_stages = {1};
    ReplicaProgram& replica = program.replicas.emplace_back();
    replica.groups.resize(1);
    for (int slot = 0; slot < 3; ++slot) {
      const auto& items = hand_case.assignment.replicas[0].modules[0];
      Group group = oracle::group_of_items(items[static_cast<std::size_t>(slot)], {slot});
      if (slot > 0) {
        group.earlier = {{slot - 1, 0}};
      }
      if (slot < 2) {
        group.later = {{slot + 1, 0}};
      }
      replica.groups[0].push_back({group});
    }
    replica.lanes.resize(1);
  }

  void add(OperationKind kind, int slot) {
    program.replicas[0].lanes[0].push_back({kind, {0, 0, slot, 0}, -1});
  }
  [[nodiscard]] std::vector<std::int64_t> bytes() const {
    return memory_over_time(program, hand_case.costs, 0, 0);
  }

  oracle::HandCase hand_case;
  Program program;
};

// The last chunk's backward makes the gradients of all earlier keys and values; each chunk's own
// takes in its own.
TEST(MemoryOverTime, HoldsGradientsOfKeysAndValues) {
  ThreeChunks chunks;
  for (const int slot : {0, 1, 2}) {
    chunks.add(OperationKind::kForward, slot);
  }
  chunks.add(OperationKind::kBackward, 2);
  chunks.add(OperationKind::kBackwardInput, 1);
  chunks.add(OperationKind::kBackwardWeight, 1);
  chunks.add(OperationKind::kBackward, 0);
  EXPECT_EQ(chunks.bytes(),
            (std::vector<std::int64_t>{50, 75, 100, 100 + 36, 75 + 36, 75 + 24, 50 + 24}));
}

TEST(MemoryOverTime, KeepsKeysAndValuesByThemselvesWithoutBackward) {
  ThreeChunks chunks;
  for (const int slot : {0, 1, 2}) {
    chunks.add(OperationKind::kForward, slot);
    chunks.program.replicas[0].groups[0][static_cast<std::size_t>(slot)][0].takes_backward = {0};
  }
  chunks.program.replicas[0].lanes[0].push_back({OperationKind::kClipNorm, {}, -1});
  EXPECT_EQ(chunks.bytes(), (std::vector<std::int64_t>{50 + 24, 24 + 25 + 12, 36 + 25, 0}));
}

}  // namespace
}  // namespace entrain
