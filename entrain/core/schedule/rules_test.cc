// list_schedule_test.cc compares the orders' times with the simulator's.
#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/schedule/list_schedule.h"
#include "entrain/core/schedule/order.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

std::int64_t step_ns(const oracle::RandomCase& of, const char* schedule) {
  return simulate(build_program(of.plan, of.assignment, of.costs, schedule), of.costs)
      .makespan.count();
}

TEST(FoundOrders, AreRulesInAFixedOrder) {
  for (const ListRule& rule : eager_rules()) {
    EXPECT_FALSE(rule.weight != WeightHalf::kWhole || rule.in_order);
  }
  const std::vector<ListRule> fused = entrain_fused_rules();
  EXPECT_EQ(std::count(fused.begin(), fused.end(), kStrictRule), 1) << "1F1B is among them";
  const std::vector<ListRule> all = entrain_rules();
  EXPECT_TRUE(std::equal(fused.rbegin(), fused.rend(), all.rbegin()))
      << "whatever fused orders can do, split ones can";
}

// The found orders choose among rules of which 1F1B is one.
TEST(FoundOrders, AreNeverSlowerThanStrictOrderOnLanesOfOneStage) {
  for (int i = 0; i < 1000; ++i) {
    Rng rng(20261125, static_cast<std::uint64_t>(i));
    oracle::RandomCaseOptions options;
    options.layout = oracle::LaneLayout::kLanePerStage;
    options.replicas = 1;
    oracle::RandomCase of = oracle::make_random_case(rng, options);
    of.plan.limits.bytes_per_lane = 0;
    const std::int64_t strict = step_ns(of, "1f1b");
    const std::int64_t fused = step_ns(of, "entrain-fused");
    ASSERT_LE(fused, strict) << oracle::describe(of);
    ASSERT_LE(step_ns(of, "entrain"), fused) << oracle::describe(of);
  }
}

TEST(FoundOrders, SplitNoWeightGradientUnlessAsked) {
  for (int i = 0; i < 200; ++i) {
    Rng rng(20261126, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng);
    for (const char* schedule : {"1f1b-eager", "entrain-fused"}) {
      const Program program = build_program(of.plan, of.assignment, of.costs, schedule);
      for (const ReplicaProgram& replica : program.replicas) {
        for (const std::vector<Operation>& lane : replica.lanes) {
          for (const Operation& operation : lane) {
            ASSERT_NE(operation.kind, OperationKind::kBackwardInput) << schedule;
            ASSERT_NE(operation.kind, OperationKind::kBackwardWeight) << schedule;
          }
        }
      }
    }
  }
}

// Under a limit that 1F1B keeps, every found order keeps it too.
TEST(FoundOrders, KeepTheLimitThatStrictOrderKeeps) {
  int narrow = 0;
  for (int i = 0; i < 500; ++i) {
    Rng rng(20261127, static_cast<std::uint64_t>(i));
    oracle::RandomCase of = oracle::make_random_case(rng);
    of.plan.limits.bytes_per_lane = 0;
    const Program strict = build_program(of.plan, of.assignment, of.costs, "1f1b");
    std::int64_t peak = 0;
    for (const auto& lanes : simulate(strict, of.costs).lanes) {
      for (const LaneUsage& lane : lanes) {
        peak = std::max(peak, lane.peak_bytes);
      }
    }
    of.plan.limits.bytes_per_lane = peak;
    for (const char* schedule : {"1f1b-eager", "entrain", "entrain-fused"}) {
      const Program program = build_program(of.plan, of.assignment, of.costs, schedule);
      ASSERT_NO_THROW(validate_program(program, of.plan, of.assignment, of.costs))
          << schedule << "\n"
          << oracle::describe(of);
    }
    Plan free = of.plan;
    free.limits = {};
    const Program wide = build_program(free, of.assignment, of.costs, "1f1b-eager");
    for (const auto& lanes : simulate(wide, of.costs).lanes) {
      narrow += std::any_of(lanes.begin(), lanes.end(), [&](const LaneUsage& lane) {
        return lane.peak_bytes > peak;
      });
    }
  }
  EXPECT_GT(narrow, 50) << "the limits bind";
}

}  // namespace
}  // namespace entrain
