#include "entrain/core/planner/plan_score.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

oracle::RandomCase make_score_case() {
  Rng rng(29);
  oracle::RandomCaseOptions options;
  options.encoders = 1;
  options.layout = oracle::LaneLayout::kLanePerStage;
  oracle::RandomCase result = oracle::make_random_case(rng, options);
  result.plan.policy = "lpt-2d";
  result.plan.schedule = "1f1b";
  result.plan.limits = {};
  return result;
}

TEST(ScoreStep, IsWhatTheSimulatorSaysOfTheAssignment) {
  const oracle::RandomCase instance = make_score_case();
  const StepScore score = score_step(instance.plan, instance.costs, 3, 5);
  ASSERT_TRUE(score.fits());
  AssignRequest request{.plan = &instance.plan, .costs = &instance.costs};
  request.step = 3;
  request.seed = 5;
  const StepAssignment assignment = assign("lpt-2d", request);
  const Program program = build_program(instance.plan, assignment, instance.costs, "1f1b");
  EXPECT_EQ(score.ns, simulate(program, instance.costs).makespan.count());
  ASSERT_EQ(score.lane_peak_bytes.size(), static_cast<std::size_t>(instance.plan.num_lanes()));
  std::int64_t peak = 0;
  for (int replica = 0; replica < instance.plan.replicas; ++replica) {
    for (const std::int64_t bytes : memory_over_time(program, instance.costs, replica, 0)) {
      peak = std::max(peak, bytes);
    }
  }
  EXPECT_EQ(score.lane_peak_bytes[0], peak);
}

TEST(ScoreStep, SaysWhichLaneIsFull) {
  oracle::RandomCase instance = make_score_case();
  const StepScore free = score_step(instance.plan, instance.costs, 0, 0);
  const auto fullest = std::max_element(free.lane_peak_bytes.begin(), free.lane_peak_bytes.end());
  ASSERT_GT(*fullest, 1);
  instance.plan.limits.bytes_per_lane = *fullest - 1;
  const StepScore full = score_step(instance.plan, instance.costs, 0, 0);
  EXPECT_FALSE(full.fits());
  EXPECT_NE(full.reason.find("lane " + std::to_string(fullest - free.lane_peak_bytes.begin())),
            std::string::npos)
      << full.reason;
  instance.plan.limits.bytes_per_lane = 1;
  instance.plan.policy = "entrain";
  EXPECT_FALSE(score_step(instance.plan, instance.costs, 0, 0).fits());
}

}  // namespace
}  // namespace entrain
