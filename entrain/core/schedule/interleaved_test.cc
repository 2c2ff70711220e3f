#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::compute_text;
using oracle::HandCase;
using oracle::make_hand_case;
using oracle::make_plain_case;

// Stage i of each module on lane i mod lanes_of[module] of its own lanes.
void wrap(HandCase& hand_case, const std::vector<int>& lanes_of) {
  std::vector<std::vector<StageRef>> lanes;
  for (std::size_t module = 0; module < lanes_of.size(); ++module) {
    const std::size_t first = lanes.size();
    const int stages = static_cast<int>(hand_case.plan.modules[module].stages.size());
    lanes.resize(first + static_cast<std::size_t>(lanes_of[module]));
    for (int stage = 0; stage < stages; ++stage) {
      lanes[first + static_cast<std::size_t>(stage % lanes_of[module])].push_back(
          {static_cast<int>(module), stage});
    }
  }
  hand_case.plan.lanes = lanes;
}

HandCase wrapped_case(const std::vector<int>& stages, const std::vector<int>& lanes, int slots) {
  HandCase hand_case = make_plain_case(stages, slots);
  wrap(hand_case, lanes);
  return hand_case;
}

Program build_interleaved(const HandCase& hand_case, std::string_view schedule = "interleaved") {
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
  validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  return program;
}

std::int64_t makespan_of_interleaved(const HandCase& hand_case,
                                     std::string_view schedule = "interleaved") {
  return simulate(build_interleaved(hand_case, schedule), hand_case.costs).makespan.count();
}

TEST(Interleaved, RunsRoundsOfChunks) {
  const Program program = build_interleaved(wrapped_case({4}, {2}, 4));
  EXPECT_EQ(compute_text(program, 0, 0),
            "llm0:F0 llm0:F1 llm2:F0 llm2:F1 llm0:F2 llm2:B0 llm0:F3 llm2:B1 "
            "llm2:F2 llm0:B0 llm2:F3 llm0:B1 llm2:B2 llm2:B3 llm0:B2 llm0:B3");
  EXPECT_EQ(compute_text(program, 0, 1),
            "llm1:F0 llm1:F1 llm3:F0 llm3:B0 llm3:F1 llm3:B1 llm1:F2 llm1:B0 "
            "llm1:F3 llm1:B1 llm3:F2 llm3:B2 llm3:F3 llm3:B3 llm1:B2 llm1:B3");
}

// Forward 10 ns and backward 20 ns a stage: the bubble is (lanes - 1) × 30 instead of
// (lanes - 1) × 30 × chunks.
TEST(Interleaved, DividesTheBubbleByTheChunks) {
  for (const int lanes : {2, 4}) {
    for (const int chunks : {2, 3}) {
      for (const int rounds : {1, 2, 4}) {
        const int slots = lanes * rounds;
        const HandCase hand_case = wrapped_case({lanes * chunks}, {lanes}, slots);
        EXPECT_EQ(makespan_of_interleaved(hand_case), slots * chunks * 30 + (lanes - 1) * 30)
            << lanes << " lanes, " << chunks << " chunks, " << slots << " slots";
        HandCase whole = make_plain_case({lanes}, slots);
        for (StageCosts& stage : whole.costs.modules[0].stages) {
          for (UnitCost& unit : stage.units) {
            unit.time = {unit.time.forward * chunks,
                         unit.time.backward_input * chunks,
                         unit.time.backward_weight * chunks};
          }
        }
        EXPECT_EQ(makespan_of_interleaved(whole, "1f1b"), (slots + lanes - 1) * chunks * 30);
      }
    }
  }
}

// build_interleaved() validates: no cycle, every operation once.
TEST(Interleaved, TakesSlotsAndStagesThatDoNotDivide) {
  for (const int lanes : {1, 2, 3, 4}) {
    for (int stages = lanes + 1; stages <= 3 * lanes; ++stages) {
      for (int slots = 1; slots <= 2 * lanes + 3; ++slots) {
        const HandCase hand_case = wrapped_case({stages}, {lanes}, slots);
        EXPECT_GE(makespan_of_interleaved(hand_case), slots * 30 * (stages / lanes));
      }
    }
  }
}

TEST(Interleaved, TakesFiveHundredStages) {
  const HandCase hand_case = wrapped_case({512}, {64}, 3);
  EXPECT_GT(makespan_of_interleaved(hand_case), 3 * 8 * 30);
}

TEST(Interleaved, FeedsAWrappedLlmFromItsEncoders) {
  for (const int slots : {1, 2, 4, 7, 12}) {
    for (const std::vector<int>& encoder_lanes : {std::vector<int>{1, 2}, {2, 1}, {2, 2}}) {
      const HandCase hand_case = wrapped_case({encoder_lanes[0], 2 * encoder_lanes[1], 6},
                                              {encoder_lanes[0], encoder_lanes[1], 3},
                                              slots);
      EXPECT_GT(makespan_of_interleaved(hand_case), 0);
    }
  }
}

// The LLM's first lane runs five forwards before its first backward that leaves the LLM, and four
// slots' first chunk until then; the encoder is one ahead.
TEST(Interleaved, WarmsEncodersUpForTheLlm) {
  const Program program = build_interleaved(wrapped_case({1, 4}, {1, 2}, 8));
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 F7 B3 B4 B5 B6 B7");
}

TEST(Interleaved, CarriesDeferralAndEmptySlots) {
  HandCase hand_case =
      make_hand_case({2, 4}, 5, {{0, {{0}}}, {3, {{0}}}, {1, {{1}}}, {3, {{1, 2}}}, {4, {{}}}});
  wrap(hand_case, {1, 2});
  const std::string text = compute_text(build_interleaved(hand_case), 0, 1);
  EXPECT_EQ(text.find("llm0:F2"), std::string::npos) << text;
  EXPECT_NE(text.find("llm2:B3"), std::string::npos) << text;
}

TEST(Interleaved, TakesFrozenModules) {
  HandCase hand_case = wrapped_case({4, 4}, {2, 2}, 5);
  set_trainable(hand_case, 0, false);
  EXPECT_EQ(compute_text(build_interleaved(hand_case), 0, 0).find('B'), std::string::npos);
  HandCase frozen_llm = wrapped_case({1, 4}, {1, 2}, 5);
  set_trainable(frozen_llm, 1, false);
  EXPECT_NE(compute_text(build_interleaved(frozen_llm), 0, 1).find("llm0:B4"), std::string::npos);
}

TEST(Interleaved, RefusesLanesThatDoNotWrap) {
  HandCase shared = make_plain_case({1, 2}, 4);
  shared.plan.lanes = {{{0, 0}, {1, 0}}, {{1, 1}}};
  HandCase crossed = make_plain_case({4}, 4);  // lanes 0, 1, 1, 0
  crossed.plan.lanes = {{{0, 0}, {0, 3}}, {{0, 1}, {0, 2}}};
  HandCase growing = make_plain_case({4}, 4);  // lanes 0, 1, 0, 2
  growing.plan.lanes = {{{0, 0}, {0, 2}}, {{0, 1}}, {{0, 3}}};
  for (const HandCase& hand_case : {make_plain_case({1, 2}, 4), shared, crossed, growing}) {
    EXPECT_THROW(build_interleaved(hand_case), InvalidInput);
  }
}

}  // namespace
}  // namespace entrain
