#include "entrain/core/baselines/module_work.h"

#include <gtest/gtest.h>

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

// Two segments, none, one segment; 10 ns forward and 20 ns backward a unit and stage.
oracle::HandCase three_samples() {
  return oracle::make_hand_case({2, 1, 3}, 1, {{0, {{0, 0}, {}}}, {0, {{}, {}}}, {0, {{0}, {0}}}});
}

TEST(ModuleWork, SumsOverSegmentsStagesAndEncoders) {
  const ModuleWork work = module_work(three_samples().costs);
  EXPECT_EQ(work.encoder, (std::vector<std::int64_t>{120, 0, 90}));
  EXPECT_EQ(work.llm, (std::vector<std::int64_t>{90, 90, 90}));
}

TEST(ForwardTimes, SumOverStagesByUnit) {
  oracle::HandCase hand = three_samples();
  hand.costs.modules[0].stages[1].units[2].time.forward = std::chrono::nanoseconds{7};
  EXPECT_EQ(forward_times(hand.costs, 0), (std::vector<std::int64_t>{20, 20, 17}));
  EXPECT_EQ(forward_times(hand.costs, 2), (std::vector<std::int64_t>{30, 30, 30}));
}

}  // namespace
}  // namespace entrain
