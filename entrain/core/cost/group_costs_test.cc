#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"

#include "tests/oracle/paper_costs.h"

namespace entrain {
namespace {

using oracle::paper_batch;
using oracle::paper_model;
using oracle::paper_plan;
using oracle::paper_profile;
using std::chrono::nanoseconds;

TEST(OperationTime, IsLaunchPlusItems) {
  const StepCosts costs = step_costs(paper_model(), paper_plan(), paper_profile(), paper_batch());
  const UnitKey unit{0, 0, 0, 0};
  Group group;
  group.items = {{.sample = 0, .segment = 0}, {.sample = 0, .segment = 1}};
  EXPECT_EQ(operation_time(costs, OperationKind::kForward, unit, group).count(), 21 + 24 + 64);
  EXPECT_EQ(operation_time(costs, OperationKind::kBackwardInput, unit, group).count(),
            21 + 36 + 104);
  EXPECT_EQ(operation_time(costs, OperationKind::kBackwardWeight, unit, group).count(),
            81 + 44 + 88);
  EXPECT_EQ(operation_time(costs, OperationKind::kBackward, unit, group).count(),
            21 + 36 + 104 + 81 + 44 + 88);
  EXPECT_EQ(activation_bytes(costs, unit, group), 52 + 104);
  EXPECT_EQ(output_bytes(costs, unit, group), 12 * 8 * 4);
  EXPECT_EQ(recompute_bytes(costs, unit, group), RecomputeBytes{});
  EXPECT_THROW(operation_time(costs, OperationKind::kSend, unit, group), InternalError);
}

TEST(TransferTime, IsLatencyPlusBytesRoundedUp) {
  EXPECT_EQ(transfer_time({}, 1 << 30).count(), 0);
  EXPECT_EQ(transfer_time({nanoseconds{7}, 0}, 100).count(), 7);
  EXPECT_EQ(transfer_time({nanoseconds{7}, 3e9}, 10).count(), 7 + 4);
  EXPECT_EQ(transfer_time({nanoseconds{7}, 3e9}, 0).count(), 7);
  EXPECT_THROW(transfer_time({nanoseconds{7}, 1e-9}, 1 << 30), InvalidInput);
}

}  // namespace
}  // namespace entrain
