// tests/property/assignment_test.cc compares with the simulation of all replicas.
#include "entrain/core/assigner/evaluate.h"

#include <gtest/gtest.h>

#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

TEST(StepEvaluator, TimesOneReplica) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 1);
  hand.plan.replicas = 3;
  hand.costs.modules[0].stages[0].reduce = nanoseconds{5};
  hand.costs.modules[1].stages[0].reduce = nanoseconds{100};
  hand.costs.modules[1].stages[0].optimizer = nanoseconds{7};
  StepEvaluator evaluator(hand.plan, hand.costs);
  const ReplicaTimes times = evaluator.evaluate(hand.assignment.replicas[0]);
  EXPECT_EQ(times.finish_ns, (std::vector<std::int64_t>{60, 40}));
  EXPECT_EQ(times.total_ns, 140);
  EXPECT_GE(times.peak_bytes, 100);
  EXPECT_EQ(evaluator.step_ns({times, times, times}), 147);
  EXPECT_EQ(evaluator.evaluations(), 1);
}

TEST(StepEvaluator, MeasuresMemoryUnderALimit) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 3);
  hand.plan.limits.bytes_per_lane = 150;
  StepEvaluator evaluator(hand.plan, hand.costs);
  const ReplicaTimes times = evaluator.evaluate(hand.assignment.replicas[0]);
  EXPECT_GE(times.peak_bytes, 200);  // two slots in flight on the encoder's lane
  EXPECT_FALSE(evaluator.fits(times));
}

}  // namespace
}  // namespace entrain
