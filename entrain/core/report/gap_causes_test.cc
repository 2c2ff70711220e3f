#include "entrain/core/report/gap_causes.h"

#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/random_cases.h"
#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

GapCauses causes_of(const oracle::TwoLanes& lanes, nanoseconds bound = nanoseconds{0}) {
  return gap_causes(
      lanes.program, simulate(lanes.program, lanes.costs, {.events = true}), lanes.costs, bound);
}

nanoseconds total_of(const GapCauses& causes) {
  return std::accumulate(causes.time.begin(), causes.time.end(), -causes.in_bound);
}

TEST(GapCauses, SplitTheTwoSlotExample) {
  // LLM lane: F0 and its message before it, B1's message and B1 behind it, no waits between.
  const GapCauses causes = causes_of(oracle::two_slots_with_link(), nanoseconds{100});
  ASSERT_EQ(causes.lane, 0) << "equal work: the first lane";
  EXPECT_EQ(causes.of(GapCause::kFill), nanoseconds{0});
  EXPECT_EQ(causes.of(GapCause::kDrain), nanoseconds{0});
  EXPECT_EQ(causes.of(GapCause::kLinks), nanoseconds{26}) << "one way, and back";
  EXPECT_EQ(causes.of(GapCause::kOrder), nanoseconds{30}) << "F and B of the LLM";
  EXPECT_EQ(causes.in_bound, nanoseconds{100 - 60});
  EXPECT_EQ(total_of(causes), nanoseconds{16});
}

TEST(GapCauses, SeparateOversizedSamplesFromUnevenSlotsAndLaunches) {
  oracle::TwoLanes lanes = oracle::two_slots_with_link();
  lanes.costs.link = {};
  lanes.costs.modules[0].stages[0].launch.forward = nanoseconds{1};
  lanes.costs.modules[0].stages[0].launch.backward_input = nanoseconds{1};
  auto& units = lanes.costs.modules[1].stages[0].units;
  units[0].time.forward = nanoseconds{100};
  units[1].time.forward = nanoseconds{2};
  units[0].time.backward_input = nanoseconds{0};
  units[1].time.backward_input = nanoseconds{0};
  lanes.costs.modules[0].stages[0].units[0].time.backward_input = nanoseconds{200};
  const GapCauses causes = causes_of(lanes);
  ASSERT_EQ(causes.lane, 0);
  EXPECT_EQ(causes.of(GapCause::kLaunches), nanoseconds{4});
  // Between F1 and B0 of the encoder the oversized sample's forward and its backward of 10 ns run.
  EXPECT_GT(causes.of(GapCause::kOversized), nanoseconds{80});
  EXPECT_EQ(causes.of(GapCause::kUneven), nanoseconds{0});
}

TEST(GapCauses, AddUpToTheGapInRandomCases) {
  for (int i = 0; i < 1000; ++i) {
    Rng rng(20261122, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng);
    for (const char* schedule : {"1f1b", "entrain"}) {
      const Program program = build_program(of.plan, of.assignment, of.costs, schedule);
      const Timeline timeline = simulate(program, of.costs, {.events = true});
      const nanoseconds bound = step_lower_bound(of.plan, of.costs, schedule);
      const GapCauses causes = gap_causes(program, timeline, of.costs, bound);
      ASSERT_EQ(total_of(causes), timeline.makespan - bound) << oracle::describe(of);
      for (int cause = 0; cause < kNumGapCauses; ++cause) {
        ASSERT_GE(causes.of(static_cast<GapCause>(cause)).count(), 0) << oracle::describe(of);
      }
    }
  }
}

TEST(GapCauses, AreNamedInWords) {
  GapCauses causes;
  causes.time[static_cast<std::size_t>(GapCause::kOrder)] = nanoseconds{8};
  causes.time[static_cast<std::size_t>(GapCause::kFill)] = nanoseconds{12};
  EXPECT_EQ(to_string(causes, nanoseconds{1000}), "fill 1.2 %, order 0.8 %");
  EXPECT_EQ(to_string(GapCauses{}, nanoseconds{1000}), "none");
}

}  // namespace
}  // namespace entrain
