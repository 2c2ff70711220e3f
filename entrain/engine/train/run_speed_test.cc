#include "entrain/engine/train/run_speed.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

using std::chrono::milliseconds;

// Two lanes that compute so long, in a step that takes twice the first one's time.
Timeline timeline(int first_ms, int second_ms) {
  Timeline result;
  result.makespan = milliseconds(2 * first_ms);
  result.lanes = {{{milliseconds(first_ms), milliseconds(first_ms), 0},
                   {milliseconds(second_ms), milliseconds(second_ms), 0}}};
  return result;
}

TEST(RunSpeed, KnowsNothingBeforeTwoSteps) {
  RunSpeed speed;
  EXPECT_FALSE(speed.expected_s(timeline(10, 10)).has_value());
  speed.observe(timeline(10, 10), timeline(500, 500));  // warms up
  EXPECT_FALSE(speed.expected_s(timeline(10, 10)).has_value());
}

TEST(RunSpeed, IsTheRatioOfTheLastStepsSums) {
  RunSpeed speed;
  speed.observe(timeline(10, 10), timeline(500, 500));
  speed.observe(timeline(10, 30), timeline(20, 40));
  EXPECT_DOUBLE_EQ(speed.expected_s(timeline(100, 1)).value(), 0.2 * 60 / 40);
  speed.observe(timeline(100, 60), timeline(100, 40));
  EXPECT_DOUBLE_EQ(speed.expected_s(timeline(100, 1)).value(), 0.2 * 200 / 200);
  for (std::size_t i = 0; i < RunSpeed::kSteps; ++i) {
    speed.observe(timeline(10, 10), timeline(30, 10));
  }
  EXPECT_DOUBLE_EQ(speed.expected_s(timeline(100, 1)).value(), 0.2 * 2) << "old steps count";
}

TEST(RunSpeed, AdvisesOnceWhereTheProfileIsFarOff) {
  for (const auto& [measured_ms, advised] :
       {std::pair{13, true}, {12, false}, {9, false}, {7, true}}) {
    RunSpeed speed;
    int lines = 0;
    for (std::size_t step = 0; step < 3 * RunSpeed::kSteps; ++step) {
      const std::string line = speed.observe(timeline(10, 10), timeline(measured_ms, measured_ms));
      EXPECT_TRUE(line.empty() || step == RunSpeed::kSteps) << step;
      lines += line.empty() ? 0 : 1;
    }
    EXPECT_EQ(lines, advised ? 1 : 0) << measured_ms;
  }
}

TEST(RunSpeed, SaysNothingOfStepsWithoutCosts) {
  RunSpeed speed;
  for (std::size_t step = 0; step < 2 * RunSpeed::kSteps; ++step) {
    EXPECT_EQ(speed.observe(timeline(0, 0), timeline(10, 10)), "");
  }
  EXPECT_FALSE(speed.expected_s(timeline(10, 10)).has_value());
}

}  // namespace
}  // namespace entrain::engine
