#include "entrain/core/planner/plan_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/case_count.h"
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

// Of several replicas: what ends in time seldom, and what does not nearly always.
TEST(ScoreStep, GivesUpWhatHardlyEndsInTime) {
  Rng rng(83);
  int late = 0;
  int given_up = 0;
  int wrongly = 0;
  int by_mean = 0;  // where one replica alone does not show it
  for (int i = 0; i < oracle::case_count(400); ++i) {
    oracle::RandomCase instance = oracle::make_random_case(rng, {});
    instance.plan.policy = "entrain";
    instance.plan.schedule = i % 2 == 0 ? "1f1b" : "entrain";
    instance.plan.limits.evaluations = kFewEvaluations;
    const auto score = [&](std::int64_t give_up_ns) {
      return score_step(instance.plan, instance.costs, 0, 0, {.give_up_ns = give_up_ns});
    };
    const StepScore whole = score(std::numeric_limits<std::int64_t>::max());
    const StepScore in_time = score(whole.ns);
    const StepScore too_late = score(whole.ns / 2);
    for (const StepScore& scored : {in_time, too_late}) {
      EXPECT_TRUE(scored.gave_up || scored.ns == whole.ns) << "case " << i;
      EXPECT_EQ(scored.lane_peak_bytes.empty(), scored.gave_up || whole.lane_peak_bytes.empty());
    }
    if (!whole.fits() || instance.plan.replicas == 1) {
      EXPECT_FALSE(too_late.gave_up) << "case " << i;
      continue;
    }
    ++late;
    given_up += too_late.gave_up ? 1 : 0;
    wrongly += in_time.gave_up ? 1 : 0;
    if (too_late.gave_up) {
      EXPECT_GT(too_late.ns, whole.ns / 2) << "case " << i;
      const StepScore later = score(too_late.ns);
      by_mean += later.gave_up && later.ns > too_late.ns ? 1 : 0;
    }
  }
  EXPECT_GT(late, oracle::met_count(100));
  EXPECT_GT(10 * given_up, 9 * late);
  EXPECT_LT(20 * wrongly, late);
  EXPECT_GT(by_mean, oracle::met_count(5));
}

}  // namespace
}  // namespace entrain
