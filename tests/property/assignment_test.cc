// Random tiny instances: every policy's result is valid, deterministic and bounded from below, and
// `entrain` is what it says it is.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/balance.h"
#include "entrain/core/assigner/evaluate.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/placements.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

constexpr std::uint64_t kSeed = 20240611;
constexpr int kCases = 1000;

std::int64_t step_ns(const StepAssignment& assignment, const Plan& plan, const StepCosts& costs) {
  return simulate(build_program(plan, assignment, costs, plan.schedule), costs).makespan.count();
}

oracle::RandomCase small_case(int index, bool recompute = false) {
  Rng rng(kSeed, static_cast<std::uint64_t>(index) + 1);
  oracle::RandomCaseOptions options;
  options.chunks = index % 4 == 0;
  options.recompute = recompute;
  oracle::RandomCase result = oracle::make_random_case(rng, options);
  result.plan.schedule = rng.below(4) == 0 ? "gpipe" : "1f1b";
  result.plan.limits.evaluations = static_cast<int>(rng.below(60));
  return result;
}

AssignRequest request_of(const oracle::RandomCase& random_case, int index) {
  AssignRequest request;
  request.plan = &random_case.plan;
  request.costs = &random_case.costs;
  request.step = index % 3;
  request.seed = static_cast<std::uint64_t>(index);
  request.options.shape = index % 2 == 0;
  request.options.choose_slots = index % 3 != 0;
  request.options.defer = index % 5 != 0;
  request.options.split_segments = index % 7 != 0;
  return request;
}

std::string instance(const oracle::RandomCase& random_case, int index) {
  return "seed " + std::to_string(kSeed) + ", case " + std::to_string(index) + ", schedule " +
         random_case.plan.schedule + "\n" + describe(random_case);
}

class EveryPolicy : public testing::TestWithParam<std::string> {};

TEST_P(EveryPolicy, IsValidDeterministicAndAboveTheBound) {
  for (int i = 0; i < kCases; ++i) {
    const oracle::RandomCase random_case = small_case(i);
    const AssignRequest request = request_of(random_case, i);
    const StepAssignment first = assign(GetParam(), request);
    ASSERT_NO_THROW(validate_assignment(first, random_case.plan, random_case.costs))
        << instance(random_case, i);
    ASSERT_EQ(digest(first), digest(assign(GetParam(), request))) << instance(random_case, i);
    const std::int64_t time = step_ns(first, random_case.plan, random_case.costs);
    ASSERT_LE(
        step_lower_bound(random_case.plan, random_case.costs, random_case.plan.schedule).count(),
        time)
        << instance(random_case, i);
    for (const ReplicaAssignment& replica : first.replicas) {
      std::size_t samples = 0;
      for (const Slot& slot : replica.modules.back()) {
        samples += slot.size();
      }
      ASSERT_GE(samples, 1U) << instance(random_case, i);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         EveryPolicy,
                         testing::ValuesIn(policy_names()),
                         [](const testing::TestParamInfo<std::string>& parameter) {
                           std::string name = parameter.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(RandomAssignment, IsValidAndAboveTheBound) {
  for (int i = 0; i < kCases; ++i) {
    const oracle::RandomCase random_case = small_case(i);
    ASSERT_NO_THROW(
        validate_assignment(random_case.assignment, random_case.plan, random_case.costs))
        << instance(random_case, i);
    ASSERT_LE(
        step_lower_bound(random_case.plan, random_case.costs, random_case.plan.schedule).count(),
        step_ns(random_case.assignment, random_case.plan, random_case.costs))
        << instance(random_case, i);
  }
}

TEST(EntrainPolicy, IsNeverSlowerThanSequentialAndLpt) {
  for (int i = 0; i < 2 * kCases; ++i) {
    oracle::RandomCase random_case = small_case(i);
    if (i >= kCases) {
      const std::vector<std::string> schedules = oracle::schedules_for(random_case.plan);
      random_case.plan.schedule = schedules[static_cast<std::size_t>(i) % schedules.size()];
      random_case.plan.limits.evaluations += 1;
    }
    const AssignRequest request = request_of(random_case, i);
    const auto time = [&](const char* policy) {
      return step_ns(assign(policy, request), random_case.plan, random_case.costs);
    };
    const std::int64_t ours = time("entrain");
    ASSERT_LE(ours, time("lpt-2d")) << instance(random_case, i);
    ASSERT_LE(ours, time("sequential")) << instance(random_case, i);
  }
}

TEST(EntrainPolicy, IsValidAndDeterministicWhenItBalances) {
  for (int i = 0; i < kCases; ++i) {
    const oracle::RandomCase random_case = small_case(i);
    AssignRequest request = request_of(random_case, i);
    request.objective = Objective::kBalance;
    const StepAssignment first = assign("entrain", request);
    ASSERT_NO_THROW(validate_assignment(first, random_case.plan, random_case.costs))
        << instance(random_case, i);
    ASSERT_EQ(digest(first), digest(assign("entrain", request))) << instance(random_case, i);
    for (const ReplicaAssignment& replica : first.replicas) {
      ASSERT_EQ(replica.num_slots, random_case.plan.num_slots) << instance(random_case, i);
    }
    for (int module = 0; module <= random_case.costs.llm_module(); ++module) {
      const ModuleBalance balance = module_balance(first, random_case.costs, module);
      ASSERT_GE(balance.cv, balance.floor_cv * (1 - 1e-9)) << instance(random_case, i);
    }
  }
}

TEST(EntrainPolicy, KeepsTheBytesOfALaneOrSaysThatNothingFits) {
  int kept = 0;
  int refused = 0;
  for (int i = 0; i < kCases; ++i) {
    oracle::RandomCase random_case = small_case(i);
    Rng rng(kSeed + 1, static_cast<std::uint64_t>(i));
    random_case.plan.limits.bytes_per_lane = 100 + static_cast<std::int64_t>(rng.below(2000));
    const AssignRequest request = request_of(random_case, i);
    try {
      const StepAssignment result = assign("entrain", request);
      const Program program =
          build_program(random_case.plan, result, random_case.costs, random_case.plan.schedule);
      ASSERT_NO_THROW(validate_program(program, random_case.plan, result, random_case.costs))
          << instance(random_case, i);
      ++kept;
    } catch (const NothingFits& error) {
      const std::string limit = concat("(", random_case.plan.limits.bytes_per_lane, " bytes)");
      ASSERT_NE(std::string(error.what()).find(limit), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(kept, 100);
  EXPECT_GT(refused, 100);
}

TEST(StepEvaluator, AgreesWithTheSimulationOfAllReplicas) {
  for (int i = 0; i < kCases; ++i) {
    oracle::RandomCase random_case = small_case(i, i % 2 == 1);
    const bool limited = i % 3 != 0;  // by what no lane reaches
    random_case.plan.limits.bytes_per_lane = limited ? std::int64_t{1} << 50 : 0;
    StepEvaluator evaluator(random_case.plan, random_case.costs);
    const Placement placement = oracle::placement_of(random_case.assignment, random_case.costs);
    const Program program = build_program(
        random_case.plan, random_case.assignment, random_case.costs, random_case.plan.schedule);
    std::vector<ReplicaTimes> times;
    for (int r = 0; r < random_case.plan.replicas; ++r) {
      times.push_back(evaluator.evaluate(placement, r));
      std::int64_t peak = 0;
      for (int lane = 0; lane < random_case.plan.num_lanes(); ++lane) {
        for (const std::int64_t bytes : memory_over_time(program, random_case.costs, r, lane)) {
          peak = std::max(peak, bytes);
        }
      }
      ASSERT_EQ(times.back().peak_bytes, limited ? peak : 0) << instance(random_case, i);
    }
    ASSERT_EQ(evaluator.step_ns(times),
              step_ns(random_case.assignment, random_case.plan, random_case.costs))
        << instance(random_case, i);
  }
}

}  // namespace
}  // namespace entrain
