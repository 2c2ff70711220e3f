#include "entrain/core/assigner/memory_fit.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/random.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/over_limit.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Limits of every lane: so many hundredths of what `lpt-2d` needs there.
void set_limits(int hundredths, oracle::RandomCase& of) {
  const AssignRequest request{.plan = &of.plan, .costs = &of.costs};
  const StepAssignment assignment = assign("lpt-2d", request);
  const Program program = build_program(of.plan, assignment, of.costs, "1f1b");
  of.plan.limits.lane_bytes.assign(of.plan.lanes.size(), 1);
  for (int replica = 0; replica < of.plan.replicas; ++replica) {
    for (int lane = 0; lane < of.plan.num_lanes(); ++lane) {
      std::int64_t& limit = of.plan.limits.lane_bytes[static_cast<std::size_t>(lane)];
      for (const std::int64_t bytes : memory_over_time(program, of.costs, replica, lane)) {
        limit = std::max(limit, bytes * hundredths / 100);
      }
    }
  }
}

// Of 1,200 random cases with memory for 55 to 105 % of what `lpt-2d` needs.
oracle::RandomCase make_case(int number) {
  const std::vector<std::string> schedules = {"1f1b", "gpipe", "entrain", "entrain-fused", "zb-h1"};
  Rng rng(61, static_cast<std::uint64_t>(number));
  oracle::RandomCaseOptions options;
  options.chunks = number % 4 == 3;
  options.recompute = number % 3 == 2;
  options.max_samples = 16;
  oracle::RandomCase of = oracle::make_random_case(rng, options);
  of.plan.schedule = schedules[static_cast<std::size_t>(number) % schedules.size()];
  set_limits(55 + static_cast<int>(rng.below(51)), of);
  return of;
}

bool keeps_limits(const oracle::RandomCase& of, const StepAssignment& assignment) {
  const Program program = build_program(of.plan, assignment, of.costs, of.plan.schedule);
  return !worst_excess(program, of.costs, of.plan.limits).has_value();
}

TEST(MemoryMiss, ReportsWhatEntrainDoesWithEveryNumberOfEvaluations) {
  int fit = 0;
  int missed = 0;
  for (int i = 0; i < oracle::case_count(1200); ++i) {
    oracle::RandomCase of = make_case(i);
    AssignRequest request{.plan = &of.plan, .costs = &of.costs, .step = i, .seed = 5};
    const std::optional<MemoryMiss> miss = memory_miss("entrain", request);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(of));
    if (miss.has_value()) {
      ++missed;
      EXPECT_GT(miss->missing_bytes, 0);
      EXPECT_NE(miss->reason.find("lane " + std::to_string(miss->lane)), std::string::npos);
      EXPECT_NE(miss->reason.find(std::to_string(miss->missing_bytes) + " bytes short"),
                std::string::npos);
      of.plan.limits.evaluations = kFewEvaluations;
      EXPECT_THROW(assign("entrain", request), OverLimits);
      continue;
    }
    ++fit;
    for (const int evaluations : {1, 7, kFewEvaluations, 90, 300}) {
      of.plan.limits.evaluations = evaluations;
      ASSERT_NO_THROW(EXPECT_TRUE(keeps_limits(of, assign("entrain", request))))
          << evaluations << " evaluations";
    }
  }
  EXPECT_GT(fit, oracle::met_count(300));
  EXPECT_GT(missed, oracle::met_count(100));
}

TEST(MemoryMiss, LooksAtTheAssignmentsOfOtherPolicies) {
  int fit = 0;
  int missed = 0;
  for (int i = 0; i < 300; ++i) {
    const oracle::RandomCase of = make_case(i);
    const AssignRequest request{.plan = &of.plan, .costs = &of.costs};
    for (const char* policy : {"lpt-2d", "sequential", "encoder-lpt"}) {
      const std::optional<MemoryMiss> miss = memory_miss(policy, request);
      EXPECT_EQ(!miss.has_value(), keeps_limits(of, assign(policy, request)));
      ++(miss.has_value() ? missed : fit);
    }
  }
  EXPECT_GT(fit, 20);
  EXPECT_GT(missed, 100);
}

TEST(MemoryMiss, NeedsALimit) {
  oracle::RandomCase of = make_case(0);
  of.plan.limits.lane_bytes.clear();
  EXPECT_FALSE(memory_miss("entrain", {.plan = &of.plan, .costs = &of.costs}).has_value());
}

}  // namespace
}  // namespace entrain
