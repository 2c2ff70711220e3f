#include <chrono>
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
using std::chrono::nanoseconds;

Program build_zero_bubble(const HandCase& hand_case, std::string_view schedule) {
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
  validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  return program;
}

// "FFIW…" without slots.
std::string split_letters(const Program& program, int lane) {
  std::string result;
  for (const char c : compute_text(program, 0, lane)) {
    if (c == 'F' || c == 'B' || c == 'I' || c == 'W') {
      result += c;
    }
  }
  return result;
}

// Every unit takes these times on every stage.
void set_times(HandCase& hand_case, int forward, int input, int weight) {
  for (ModuleCosts& module : hand_case.costs.modules) {
    for (StageCosts& stage : module.stages) {
      for (UnitCost& unit : stage.units) {
        unit.time = {nanoseconds{forward}, nanoseconds{input}, nanoseconds{weight}};
      }
    }
  }
}

std::int64_t makespan_of_zero_bubble(const HandCase& hand_case, std::string_view schedule) {
  return simulate(build_zero_bubble(hand_case, schedule), hand_case.costs).makespan.count();
}

std::vector<std::int64_t> peaks(const HandCase& hand_case, std::string_view schedule) {
  const Timeline timeline = simulate(build_zero_bubble(hand_case, schedule), hand_case.costs);
  std::vector<std::int64_t> result;
  for (const LaneUsage& lane : timeline.lanes[0]) {
    result.push_back(lane.peak_bytes);
  }
  return result;
}

TEST(ZeroBubbleH1, DelaysWeightHalvesNearTheLoss) {
  const Program program = build_zero_bubble(make_plain_case({2}, 4), "zb-h1");
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3");
}

TEST(ZeroBubbleH1, HasTheClassicBubbleOfEqualStages) {
  struct Times {
    int forward, input, weight;
  };
  for (const Times& times : {Times{10, 10, 10}, Times{7, 9, 5}, Times{10, 12, 8}}) {
    for (const int lanes : {1, 2, 4, 8}) {
      for (const int slots : {lanes, 2 * lanes, 3 * lanes + 1}) {
        HandCase hand_case = make_plain_case({lanes}, slots);
        set_times(hand_case, times.forward, times.input, times.weight);
        const int slot = times.forward + times.input + times.weight;
        EXPECT_EQ(makespan_of_zero_bubble(hand_case, "1f1b"), slots * slot + (lanes - 1) * slot);
        EXPECT_EQ(makespan_of_zero_bubble(hand_case, "zb-h1"),
                  slots * slot + (lanes - 1) * (times.forward + times.input - times.weight))
            << lanes << " lanes, " << slots << " slots, weight " << times.weight;
      }
    }
  }
}

// Units keep 100 bytes; lane s of p holds p - s slots under 1f1b.
TEST(ZeroBubbleH1, KeepsThePipelinesPeak) {
  const HandCase hand_case = make_plain_case({4}, 12);
  EXPECT_EQ(peaks(hand_case, "1f1b"), (std::vector<std::int64_t>{400, 300, 200, 100}));
  EXPECT_EQ(peaks(hand_case, "zb-h1"), (std::vector<std::int64_t>{400, 400, 400, 400}));
}

// Four stages on the way through the one-stage encoder, five through the other: LLM stages may hold
// five slots, encoder stages what their own way gives.
TEST(ZeroBubbleH1, CountsSlotsOnTheLongestWayThroughAStage) {
  const Program program = build_zero_bubble(make_plain_case({1, 2, 3}, 12), "zb-h1");
  const std::vector<int> delays = {0, 0, 1, 2, 3, 4};
  for (int lane = 0; lane < 6; ++lane) {
    const std::string text = split_letters(program, lane);
    EXPECT_EQ(text.substr(text.find('I')).find('W'),
              1U + 2U * static_cast<std::size_t>(delays[static_cast<std::size_t>(lane)]))
        << "lane " << lane;
  }
}

// The frozen encoder holds nothing under 1f1b, so that the LLM's own two slots are the peak.
TEST(ZeroBubbleH1, LeavesAFrozenEncoderOutOfThePeak) {
  HandCase hand_case = make_plain_case({2, 2}, 4);
  set_trainable(hand_case, 0, false);
  const Program program = build_zero_bubble(hand_case, "zb-h1");
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 F2 F3");
  EXPECT_EQ(compute_text(program, 0, 2), "F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3");
  EXPECT_EQ(compute_text(program, 0, 3), "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3");
}

// Slot 0 holds parts 0→0 and 0→2, both of whose halves stay in the turns that release them.
TEST(ZeroBubbleH1, CarriesDeferral) {
  const Program program = build_zero_bubble(
      make_hand_case({1, 1}, 4, {{0, {{0}}}, {2, {{0}}}, {1, {{1}}}, {2, {{2}}}, {3, {{3}}}}),
      "zb-h1");
  EXPECT_EQ(compute_text(program, 0, 0),
            "F0.0 F0.1 F1 I0.0 W0.0 F2 I1 W1 F3 I0.1 I2 W0.1 W2 I3 W3");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3");
}

TEST(ZeroBubbleH1, SkipsEmptySlots) {
  const Program program =
      build_zero_bubble(make_hand_case({1, 1}, 3, {{2, {{0, 1}}}, {0, {{}}}}), "zb-h1");
  EXPECT_EQ(compute_text(program, 0, 0), "F0 F1 I0 I1 W0 W1");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 I0 W0 F2 I2 W2");
}

// u = 2 × (stages to the loss) - 1; the sister system's counts of "FBW" and "BW".
TEST(ZeroBubbleH2, RunsTurnsOfAllThree) {
  for (const std::vector<int>& stages : {std::vector<int>{4}, {1, 3}, {2, 2}}) {
    for (const int slots : {7, 8, 12, 24}) {
      const Program program = build_zero_bubble(make_plain_case(stages, slots), "zb-h2");
      for (int lane = 0; lane < 4; ++lane) {
        const int warm_up = 2 * (4 - lane) - 1;
        EXPECT_EQ(split_letters(program, lane),
                  oracle::repeat("F", warm_up) + oracle::repeat("FIW", slots - warm_up) +
                      oracle::repeat("IW", warm_up))
            << "lane " << lane << " of " << slots << " slots";
      }
    }
  }
}

TEST(ZeroBubbleH2, RunsWithFewerSlotsThanItsWarmUp) {
  for (const int slots : {1, 2, 6}) {
    const Program program = build_zero_bubble(make_plain_case({4}, slots), "zb-h2");
    EXPECT_EQ(split_letters(program, 0), oracle::repeat("F", slots) + oracle::repeat("IW", slots));
  }
}

TEST(ZeroBubbleH2, FreesTheWayBackOfWeightHalves) {
  for (const int lanes : {1, 2, 4}) {
    const int slots = 4 * lanes;
    const HandCase hand_case = make_plain_case({lanes}, slots);
    EXPECT_EQ(makespan_of_zero_bubble(hand_case, "zb-h2"), slots * 30 + (lanes - 1) * 20);
  }
  EXPECT_EQ(peaks(make_plain_case({4}, 12), "zb-h2"),
            (std::vector<std::int64_t>{800, 600, 400, 200}));
}

class ZeroBubble : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Both,
                         ZeroBubble,
                         testing::Values("zb-h1", "zb-h2"),
                         [](const auto& schedule) {
                           return std::string(schedule.param).substr(3);
                         });

TEST_P(ZeroBubble, SplitsNoBackwardOfAFrozenStage) {
  HandCase hand_case = make_plain_case({1, 2}, 4);
  set_trainable(hand_case, 1, false);
  const Program program = build_zero_bubble(hand_case, GetParam());
  EXPECT_EQ(split_letters(program, 0).find('B'), std::string::npos);
  EXPECT_NE(split_letters(program, 0).find("IW"), std::string::npos);
  for (const int lane : {1, 2}) {
    EXPECT_EQ(split_letters(program, lane).find_first_of("IW"), std::string::npos);
    EXPECT_NE(split_letters(program, lane).find('B'), std::string::npos);
  }
}

// Nothing is trainable nearer the input than the stage's only layer.
TEST_P(ZeroBubble, SplitsNoBackwardOfWeightsAlone) {
  HandCase hand_case = make_plain_case({2, 1}, 3);
  hand_case.costs.modules[0].stages[0].trainable = false;
  for (UnitCost& unit : hand_case.costs.modules[0].stages[1].units) {
    unit.time.backward_input = nanoseconds{0};
  }
  const Program program = build_zero_bubble(hand_case, GetParam());
  EXPECT_EQ(split_letters(program, 0), "FFF");
  EXPECT_EQ(split_letters(program, 1).find_first_of("IW"), std::string::npos);
  EXPECT_NE(split_letters(program, 2).find('W'), std::string::npos);
}

// A frozen LLM has no backward at all for text.
TEST_P(ZeroBubble, RunsAFrozenLlmsBackwardForImagesOnly) {
  HandCase hand_case = make_hand_case({1, 1}, 3, {{0, {{0}}}, {1, {{}}}, {2, {{2}}}});
  set_trainable(hand_case, 1, false);
  const std::string text = compute_text(build_zero_bubble(hand_case, GetParam()), 0, 1);
  EXPECT_EQ(text.find("B1"), std::string::npos) << text;
  EXPECT_NE(text.find("B0"), std::string::npos) << text;
}

TEST_P(ZeroBubble, RunsALaneOfAllStagesAsOneFOneB) {
  HandCase hand_case = make_plain_case({1, 2}, 3);
  hand_case.plan.lanes = {{{0, 0}, {1, 0}, {1, 1}}};
  EXPECT_EQ(compute_text(build_zero_bubble(hand_case, GetParam()), 0, 0),
            compute_text(build_zero_bubble(hand_case, "1f1b"), 0, 0));
}

TEST_P(ZeroBubble, SplitsOnSharedLanes) {
  HandCase hand_case = make_plain_case({1, 1, 2}, 5);
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}, {{2, 0}}, {{2, 1}}};
  const Program program = build_zero_bubble(hand_case, GetParam());
  EXPECT_NE(compute_text(program, 0, 0).find("vision0:W4"), std::string::npos);
  EXPECT_NE(compute_text(program, 0, 0).find("audio0:W4"), std::string::npos);
}

TEST_P(ZeroBubble, TakesOneSlotOneStageAndText) {
  EXPECT_EQ(split_letters(build_zero_bubble(make_plain_case({1}, 3), GetParam()), 0).find('B'),
            std::string::npos);
  EXPECT_EQ(split_letters(build_zero_bubble(make_plain_case({2, 2}, 1), GetParam()), 0), "FIW");
  const Program text =
      build_zero_bubble(make_hand_case({2, 2}, 2, {{0, {{}}}, {1, {{}}}}), GetParam());
  EXPECT_EQ(split_letters(text, 0), "");
  EXPECT_NE(split_letters(text, 2).find("IW"), std::string::npos);
}

TEST_P(ZeroBubble, TakesFiveHundredStages) {
  const HandCase hand_case = make_plain_case({512}, 3);
  EXPECT_GT(makespan_of_zero_bubble(hand_case, GetParam()), 512 * 20);
  EXPECT_LT(makespan_of_zero_bubble(hand_case, GetParam()),
            makespan_of_zero_bubble(hand_case, "1f1b"));
}

}  // namespace
}  // namespace entrain
