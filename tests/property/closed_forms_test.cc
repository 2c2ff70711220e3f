// Step times that are known without a simulator: closed forms of pipelines, and pipelines worked
// out by hand.
//
// The published step times of DynaPipe's scheduler are no test here: of its cases only results are
// known, not the stage times they belong to.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

struct StageTimes {
  int forward = 0;
  int backward = 0;
};

// An LLM alone, one stage a lane, one sample a slot, a free link.
std::int64_t makespan(const std::string& schedule,
                      const std::vector<StageTimes>& stages,
                      int num_slots) {
  oracle::HandCase hand_case =
      oracle::make_plain_case({static_cast<int>(stages.size())}, num_slots);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    for (UnitCost& unit : hand_case.costs.modules[0].stages[i].units) {
      unit.time.forward = nanoseconds{stages[i].forward};
      unit.time.backward_input = nanoseconds{stages[i].backward / 2};
      unit.time.backward_weight = nanoseconds{stages[i].backward - stages[i].backward / 2};
    }
  }
  const Program program =
      build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
  return simulate(program, hand_case.costs).makespan.count();
}

TEST(ClosedForms, EqualStages) {
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    for (int num_stages = 1; num_stages <= 8; ++num_stages) {
      for (int num_slots = 1; num_slots <= 12; ++num_slots) {
        const std::vector<StageTimes> stages(static_cast<std::size_t>(num_stages), {7, 13});
        EXPECT_EQ(makespan(schedule, stages, num_slots), (num_stages - 1 + num_slots) * (7 + 13))
            << schedule << " " << num_stages << " stages " << num_slots << " slots";
      }
    }
  }
}

TEST(ClosedForms, GpipeOfUnequalStages) {
  // Two flow shops one behind the other: each takes one pass and then its slowest stage's pace.
  Rng rng(31);
  for (int index = 0; index < 200; ++index) {
    std::vector<StageTimes> stages(1 + rng.below(6));
    int pass = 0;
    int slowest_forward = 0;
    int slowest_backward = 0;
    for (StageTimes& stage : stages) {
      stage = {static_cast<int>(rng.below(50)), static_cast<int>(rng.below(100))};
      pass += stage.forward + stage.backward;
      slowest_forward = std::max(slowest_forward, stage.forward);
      slowest_backward = std::max(slowest_backward, stage.backward);
    }
    const int num_slots = 1 + static_cast<int>(rng.below(10));
    EXPECT_EQ(makespan("gpipe", stages, num_slots),
              pass + (num_slots - 1) * (slowest_forward + slowest_backward))
        << index;
  }
}

TEST(ClosedForms, OneForwardOneBackwardOfUnequalStages) {
  // The second lane is never idle between its first forward and its last backward: 10-280.
  EXPECT_EQ(makespan("1f1b", {{10, 20}, {30, 60}}, 3), 10 + 3 * 90 + 20);
  // The first lane: F0 0-30, F1 30-60, B0 60-120, F2 120-150, B1 150-210, B2 210-270.
  EXPECT_EQ(makespan("1f1b", {{30, 60}, {10, 20}}, 3), 3 * 90);
  // A slow first stage hides all others; alone in the pipeline a slot takes one pass.
  const std::vector<StageTimes> slow_first = {{40, 60}, {4, 6}, {4, 6}, {4, 6}};
  EXPECT_EQ(makespan("1f1b", slow_first, 16), 16 * 100);
  EXPECT_EQ(makespan("1f1b", slow_first, 1), 100 + 3 * 10);
  // A slow stage in the middle is never idle from its first forward on: fill, 5 slots, drain.
  EXPECT_EQ(makespan("1f1b", {{4, 6}, {40, 60}, {4, 6}}, 5), 4 + 5 * 100 + 6);
}

}  // namespace
}  // namespace entrain
