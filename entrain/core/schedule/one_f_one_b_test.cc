#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::compute_text;
using oracle::HandCase;
using oracle::make_hand_case;
using oracle::make_plain_case;

Program build_one_f_one_b(const HandCase& hand_case) {
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, "1f1b");
  validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  return program;
}

// "FFBF…" without slots.
std::string whole_letters(const Program& program, int lane) {
  std::string result;
  for (const char c : compute_text(program, 0, lane)) {
    if (c == 'F' || c == 'B') {
      result += c;
    }
  }
  return result;
}

// Lanes in order: encoder stage 0, LLM stages 0-2; lane r is followed by 3 - r stages.
TEST(OneFOneB, IsTheClassicOrderWithoutDeferral) {
  for (const int slots : {4, 8, 12}) {
    const Program program = build_one_f_one_b(make_plain_case({1, 3}, slots));
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(whole_letters(program, r),
                oracle::repeat("F", 4 - r) + oracle::repeat("BF", slots - 4 + r) +
                    oracle::repeat("B", 4 - r))
          << "lane " << r << " of " << slots << " slots";
    }
  }
}

// Lanes in order: the one-stage encoder, both stages of the other, the LLM's three. A stage warms
// up with as many slots as stages follow it; the first turn adds one forward.
TEST(OneFOneB, WarmsUpByTheStagesThatFollow) {
  for (const int slots : {6, 12, 24}) {
    const Program program = build_one_f_one_b(make_plain_case({1, 2, 3}, slots));
    const std::vector<int> prefix = {4, 5, 4, 3, 2, 1};
    for (int lane = 0; lane < 6; ++lane) {
      EXPECT_EQ(static_cast<int>(whole_letters(program, lane).find('B')),
                prefix[static_cast<std::size_t>(lane)])
          << "lane " << lane << " of " << slots << " slots";
    }
  }
}

TEST(OneFOneB, KeepsSlotsInOrder) {
  const Program program = build_one_f_one_b(make_plain_case({1, 1}, 3));
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 B0 F2 B1 B2");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 B0 F1 B1 F2 B2");
}

TEST(OneFOneB, WarmsUpWithFewerSlotsThanStages) {
  const Program program = build_one_f_one_b(make_plain_case({1, 3}, 2));
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 B0 B1");
  EXPECT_EQ(compute_text(program, 0, 3), "F0 B0 F1 B1");
}

// Slot 0 holds parts 0→0 and 0→2: the second waits for LLM slot 2.
TEST(OneFOneB, RunsADeferredPartsBackwardAfterItsLlmSlot) {
  const Program program = build_one_f_one_b(
      make_hand_case({1, 1}, 4, {{0, {{0}}}, {2, {{0}}}, {1, {{1}}}, {2, {{2}}}, {3, {{3}}}}));
  EXPECT_EQ(compute_text(program, 0, 0), "F0.0 F0.1 F1 B0.0 F2 B1 F3 B0.1 B2 B3");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 B0 F1 B1 F2 B2 F3 B3");
}

// One sample's images in slots 0 and 1, its LLM work in slot 2; nothing in LLM slot 1.
TEST(OneFOneB, SkipsEmptySlots) {
  const Program program = build_one_f_one_b(make_hand_case({1, 1}, 3, {{2, {{0, 1}}}, {0, {{}}}}));
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 B0 B1");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 B0 F2 B2");
}

TEST(OneFOneB, RunsNoBackwardInAFrozenEncoder) {
  HandCase hand_case = make_plain_case({2, 2}, 4);
  set_trainable(hand_case, 0, false);
  const Program program = build_one_f_one_b(hand_case);
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 F2 F3");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 F1 F2 F3");
  EXPECT_EQ(compute_text(program, 0, 2), "F0 F1 B0 F2 B1 F3 B2 B3");
}

TEST(OneFOneB, StopsBackwardAtTheProjector) {
  HandCase hand_case = make_plain_case({2, 1}, 2);
  hand_case.costs.modules[0].stages[0].trainable = false;
  const Program program = build_one_f_one_b(hand_case);
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 F1 B0 B1");
}

// A frozen LLM passes gradients to the encoder, and has none to compute for text.
TEST(OneFOneB, RunsAFrozenLlmsBackwardForImagesOnly) {
  HandCase hand_case = make_hand_case({1, 2}, 3, {{0, {{0}}}, {1, {{}}}, {2, {{2}}}});
  set_trainable(hand_case, 1, false);
  const Program program = build_one_f_one_b(hand_case);
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F2 B0 B2");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 F1 B0 F2 B2");
  EXPECT_EQ(compute_text(program, 0, 2), "F0 B0 F1 F2 B2");
}

TEST(OneFOneB, RunsASingleLaneSlotBySlot) {
  HandCase hand_case = make_hand_case({1, 2}, 2, {{1, {{0}}}, {0, {{0}}}, {1, {{1}}}});
  hand_case.plan.lanes = {{{0, 0}, {1, 0}, {1, 1}}};
  EXPECT_EQ(compute_text(build_one_f_one_b(hand_case), 0, 0),
            "vision0:F0.0 llm0:F0 llm1:F0 llm1:B0 llm0:B0 vision0:B0.0 "
            "vision0:F0.1 vision0:F1 llm0:F1 llm1:F1 llm1:B1 llm0:B1 vision0:B0.1 vision0:B1");
}

// A launch that outweighs the parts 0→0 and 0→1 fuses them: forward for slot 0, backward after slot
// 1's.
HandCase fused_parts() {
  HandCase hand_case = make_hand_case({1, 1}, 3, {{0, {{0}}}, {1, {{0}}}, {2, {{2}}}});
  hand_case.costs.modules[0].stages[0].launch.forward = std::chrono::nanoseconds{1000};
  return hand_case;
}

TEST(OneFOneB, RunsAFusedGroupsBackwardAfterItsLastLlmSlot) {
  EXPECT_EQ(compute_text(build_one_f_one_b(fused_parts()), 0, 0), "F0 F2 B0 B2");
  // Turn 0 runs forward 1, turn 1 forward 2 and then the backwards that LLM slot 1 releases.
  HandCase full = make_hand_case({1, 1}, 3, {{0, {{0}}}, {1, {{0}}}, {1, {{1}}}, {2, {{2}}}});
  full.costs.modules[0].stages[0].launch.forward = std::chrono::nanoseconds{1000};
  EXPECT_EQ(compute_text(build_one_f_one_b(full), 0, 0), "F0 F1 F2 B0 B1 B2");
}

TEST(OneFOneB, OpensAFusedGroupForItsFirstLlmSlotOnASingleLane) {
  HandCase hand_case = fused_parts();
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}};
  EXPECT_EQ(compute_text(build_one_f_one_b(hand_case), 0, 0),
            "vision0:F0 llm0:F0 llm0:B0 llm0:F1 llm0:B1 vision0:B0 "
            "vision0:F2 llm0:F2 llm0:B2 vision0:B2");
}

TEST(OneFOneB, TrainsATextOnlyModel) {
  const Program program = build_one_f_one_b(make_hand_case({2}, 2, {{0, {}}, {1, {}}}));
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 B0 B1");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 B0 F1 B1");
}

// Samples 0 to 2 in slots 0 to 2; sample 1 is cut into halves, the first beside sample 0.
HandCase two_chunks(const std::vector<int>& num_stages) {
  const bool encoder = num_stages.size() > 1;
  const std::vector<std::vector<int>> image =
      encoder ? std::vector<std::vector<int>>{{0}} : std::vector<std::vector<int>>{};
  HandCase hand_case = make_hand_case(num_stages, 3, {{0, image}, {1, image}, {2, image}});
  cut_sample(hand_case, 1, {0, 1}, {0, 6});
  return hand_case;
}

// Worked by hand: halves take 5 ns forward and 10 ns backward a stage. The first half's backward
// follows the second's in turn 1; sample 0's does not wait for it.
TEST(OneFOneB, RunsAChunksBackwardInTheTurnThatEndsItsSample) {
  const HandCase hand_case = two_chunks({2});
  const Program program = build_one_f_one_b(hand_case);
  EXPECT_EQ(compute_text(program, 0, 0), "F0.0 F0.1 F1 B0.0 F2 B1 B0.1 B2");
  EXPECT_EQ(compute_text(program, 0, 1), "F0.0 F0.1 B0.0 F1 B1 B0.1 F2 B2");
  const Timeline timeline = simulate(program, hand_case.costs, {.events = true});
  std::vector<std::vector<std::int64_t>> starts(2);
  for (const TimelineEvent& event : timeline.events) {
    if (event.category == EventCategory::kCompute) {
      starts[static_cast<std::size_t>(event.lane)].push_back(event.start.count());
    }
  }
  // The last entry is the optimizer's.
  EXPECT_EQ(starts[0], (std::vector<std::int64_t>{0, 10, 15, 45, 65, 75, 85, 105, 125}));
  EXPECT_EQ(starts[1], (std::vector<std::int64_t>{10, 20, 25, 45, 50, 60, 75, 85, 125}));
  EXPECT_EQ(timeline.makespan.count(), 125);
}

// The encoder sees the same turns: the part of the first half goes with turn 1.
TEST(OneFOneB, ReleasesAnEncodersPartsWithTheirChunks) {
  const Program program = build_one_f_one_b(two_chunks({1, 1}));
  EXPECT_EQ(compute_text(program, 0, 0), "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
  EXPECT_EQ(compute_text(program, 0, 1), "F0.0 F0.1 B0.0 F1 B1 B0.1 F2 B2");
}

TEST(OneFOneB, RunsChunksSlotBySlotOnASingleLane) {
  HandCase hand_case = two_chunks({1, 1});
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}};
  EXPECT_EQ(compute_text(build_one_f_one_b(hand_case), 0, 0),
            "vision0:F0.0 vision0:F0.1 llm0:F0.0 llm0:F0.1 llm0:B0.0 vision0:B0.0 "
            "llm0:F1 llm0:B1 llm0:B0.1 vision0:B0.1 "
            "vision0:F0.2 llm0:F2 llm0:B2 vision0:B0.2");
}

}  // namespace
}  // namespace entrain
