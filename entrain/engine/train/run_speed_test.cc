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
  speed.observe(timeline(10, 10), timeline(500, 500), 1);  // warms up
  EXPECT_FALSE(speed.expected_s(timeline(10, 10)).has_value());
}

TEST(RunSpeed, IsTheRatioOfTheLastStepsSums) {
  RunSpeed speed;
  speed.observe(timeline(10, 10), timeline(500, 500), 1);
  speed.observe(timeline(10, 30), timeline(20, 40), 0);
  EXPECT_DOUBLE_EQ(speed.expected_s(timeline(100, 1)).value(), 0.2 * 60 / 40);
  speed.observe(timeline(100, 60), timeline(100, 40), 0);
  EXPECT_DOUBLE_EQ(speed.expected_s(timeline(100, 1)).value(), 0.2 * 200 / 200);
  for (std::size_t i = 0; i < RunSpeed::kSteps; ++i) {
    speed.observe(timeline(10, 10), timeline(30, 10), 0);
  }
  EXPECT_DOUBLE_EQ(speed.expected_s(timeline(100, 1)).value(), 0.2 * 2) << "old steps count";
}

TEST(RunSpeed, AdvisesOnceWhereTheProfileIsFarOff) {
  // Where lanes share cores their times are longer, and the profile is right.
  for (const auto& [processor_ms, advised] :
       {std::pair{26, true}, {24, false}, {17, false}, {15, true}}) {
    RunSpeed speed;
    int lines = 0;
    for (std::size_t step = 0; step < 3 * RunSpeed::kSteps; ++step) {
      const std::string line =
          speed.observe(timeline(10, 10), timeline(50, 50), 1e-3 * processor_ms);
      EXPECT_TRUE(line.empty() || step == RunSpeed::kSteps) << step;
      lines += line.empty() ? 0 : 1;
    }
    EXPECT_EQ(lines, advised ? 1 : 0) << processor_ms;
  }
}

TEST(RunSpeed, SaysNothingOfStepsWithoutCosts) {
  RunSpeed speed;
  for (std::size_t step = 0; step < 2 * RunSpeed::kSteps; ++step) {
    EXPECT_EQ(speed.observe(timeline(0, 0), timeline(10, 10), 0.02), "");
  }
  EXPECT_FALSE(speed.expected_s(timeline(10, 10)).has_value());
}

}  // namespace
}  // namespace entrain::engine
