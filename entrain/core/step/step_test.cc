#include "entrain/core/step/step.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/assigner/balance.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hand_cases.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

using oracle::error_of;

constexpr StepOptions kUnproven{.prove = false};
constexpr StepOptions kWithoutLimits{.prove_limits = false};

oracle::RandomCase make_case(int number) {
  Rng rng(83, static_cast<std::uint64_t>(number));
  oracle::RandomCase of = oracle::make_random_case(rng, {.chunks = number % 3 == 0});
  const std::vector<std::string> schedules = oracle::schedules_for(of.plan);
  of.plan.schedule = schedules[static_cast<std::size_t>(number) % schedules.size()];
  of.plan.limits.evaluations = 10;
  return of;
}

std::int64_t fullest(const Timeline& timeline) {
  std::int64_t bytes = 0;
  for (const std::vector<LaneUsage>& replica : timeline.lanes) {
    for (const LaneUsage& lane : replica) {
      bytes = std::max(bytes, lane.peak_bytes);
    }
  }
  return bytes;
}

TEST(SimulateStep, IsWhatItsPartsSayOneByOne) {
  int over = 0;
  for (int i = 0; i < 300; ++i) {
    oracle::RandomCase of = make_case(i);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(of));
    const std::string policy = policy_names()[static_cast<std::size_t>(i) % policy_names().size()];
    const AssignRequest request{.plan = &of.plan, .costs = &of.costs, .step = i, .seed = 3};
    const StepAssignment assignment = assign(policy, request);
    if (policy != "entrain" && i % 2 == 0) {  // found orders look at the limit
      const std::int64_t bytes = fullest(simulate_step(assignment, of.plan, of.costs).timeline);
      of.plan.limits.bytes_per_lane = std::max<std::int64_t>(1, bytes - i % 3);
    }
    const Program program = build_program(of.plan, assignment, of.costs, of.plan.schedule);
    const Timeline timeline = simulate(program, of.costs, {.events = true});
    const SimulatedStep step = simulate_step(
        policy, request, {.prove_limits = false, .events = true, .bound = true, .balance = true});
    EXPECT_EQ(digest(step.assignment), digest(assignment));
    EXPECT_TRUE(step.program == program);
    EXPECT_EQ(step.timeline.makespan, timeline.makespan);
    EXPECT_EQ(step.timeline.events.size(), timeline.events.size());
    EXPECT_EQ(fullest(step.timeline), fullest(timeline));
    EXPECT_EQ(*std::max_element(step.peak_bytes.begin(), step.peak_bytes.end()), fullest(timeline));
    EXPECT_EQ(step.bound, step_lower_bound(of.plan, of.costs, of.plan.schedule));
    const auto excess = worst_excess(program, of.costs, of.plan.limits);
    ASSERT_EQ(step.excess.has_value(), excess.has_value());
    if (excess.has_value()) {
      ++over;
      EXPECT_EQ(to_string(step.program, *step.excess), to_string(program, *excess));
    }
    const AssignmentStats& stats = step.assignment.stats;
    EXPECT_DOUBLE_EQ(stats.makespan_s, static_cast<double>(timeline.makespan.count()) * 1e-9);
    EXPECT_DOUBLE_EQ(stats.lower_bound_s, static_cast<double>(step.bound.count()) * 1e-9);
    EXPECT_DOUBLE_EQ(stats.gap, stats.makespan_s / stats.lower_bound_s - 1);
    ASSERT_EQ(stats.modules.size(), of.plan.modules.size());
    EXPECT_EQ(stats.modules.at("llm").cv,
              module_balance(assignment, of.costs, of.costs.llm_module()).cv);
  }
  EXPECT_GT(over, 30);
}

TEST(SimulateStep, LeavesOutWhatIsNotAskedFor) {
  const oracle::RandomCase of = make_case(1);
  const SimulatedStep step = simulate_step(of.assignment, of.plan, of.costs);
  EXPECT_EQ(step.assignment.replicas, of.assignment.replicas);
  EXPECT_TRUE(step.timeline.events.empty());
  EXPECT_EQ(step.bound.count(), 0);
  EXPECT_EQ(step.assignment.stats.lower_bound_s, 0);
  EXPECT_EQ(step.assignment.stats.gap, 0);
  EXPECT_TRUE(step.assignment.stats.modules.empty());
  EXPECT_GT(step.assignment.stats.makespan_s, 0);
  EXPECT_FALSE(step.excess.has_value());
}

// A program of it could run: only the assignment's own proof sees the deferral.
TEST(SimulateStep, ProvesTheAssignmentUnlessDisabled) {
  oracle::HandCase hand = oracle::make_hand_case({1, 1}, 2, {{1, {{0}}}, {1, {{1}}}});
  hand.plan.limits.max_deferral = 0;
  for (const bool limits : {true, false}) {
    const std::string message = error_of<InvalidInput>(
        [&] { simulate_step(hand.assignment, hand.plan, hand.costs, {.prove_limits = limits}); });
    EXPECT_NE(message.find("slot"), std::string::npos) << message;
  }
  EXPECT_NO_THROW(simulate_step(hand.assignment, hand.plan, hand.costs, kUnproven));
}

TEST(SimulateStep, RefusesALaneOverItsLimitUnlessDisabled) {
  oracle::RandomCase of = make_case(2);
  const auto run = [&](const StepOptions& options) {
    return simulate_step(of.assignment, of.plan, of.costs, options);
  };
  const std::int64_t bytes = fullest(run({}).timeline);
  of.plan.limits.bytes_per_lane = bytes;
  EXPECT_NO_THROW(run({}));
  EXPECT_FALSE(run(kUnproven).excess.has_value());
  of.plan.limits.bytes_per_lane = bytes - 1;
  const std::string message = error_of<InvalidInput>([&] { run({}); });
  EXPECT_NE(message.find("lane"), std::string::npos) << message;
  for (const StepOptions& options : {kUnproven, kWithoutLimits}) {
    const SimulatedStep step = run(options);
    ASSERT_TRUE(step.excess.has_value());
    EXPECT_EQ(step.excess->over(), 1);
  }
}

TEST(SimulateStep, LetsThePolicySayThatNothingFits) {
  oracle::RandomCase of = make_case(2);
  of.plan.limits.bytes_per_lane = 1;
  const AssignRequest request{.plan = &of.plan, .costs = &of.costs};
  EXPECT_THROW(simulate_step("entrain", request), OverLimits);
}

}  // namespace
}  // namespace entrain
