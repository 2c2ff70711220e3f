// For one assignment, a schedule that chooses its order is never slower than one that does not.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/lane_layouts.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

constexpr std::uint64_t kSeed = 20261125;
constexpr std::uint64_t kCases = 4000;

struct StepRun {
  std::int64_t step_ns = 0;
  std::int64_t peak_bytes = 0;
};

StepRun run_of(const oracle::RandomCase& of, const std::string& schedule) {
  const Timeline timeline =
      simulate(build_program(of.plan, of.assignment, of.costs, schedule), of.costs);
  StepRun run{timeline.makespan.count(), 0};
  for (const auto& lanes : timeline.lanes) {
    for (const LaneUsage& lane : lanes) {
      run.peak_bytes = std::max(run.peak_bytes, lane.peak_bytes);
    }
  }
  return run;
}

// Lanes of every layout, chunks and recomputation. Every other case is under a limit that one of
// its schedules keeps just so, and others do not.
oracle::RandomCase draw_case(std::uint64_t index) {
  Rng rng(kSeed, index);
  oracle::RandomCaseOptions options;
  options.chunks = index % 3 == 0;
  options.recompute = index % 5 == 0;
  options.alike = index % 4 == 0;
  const bool colocated = index % 7 == 0;
  if (colocated) {
    options.encoder_stages = 3;
    options.llm_stages = 3;
  }
  oracle::RandomCase of = oracle::make_random_case(rng, options);
  if (colocated) {
    oracle::colocate_lanes(of.plan);
  } else if (index % 7 == 1) {
    oracle::wrap_lanes(rng, of.plan);
  }
  of.plan.limits.bytes_per_lane = 0;
  if (index % 2 == 1) {
    const std::vector<std::string> names = oracle::schedules_for(of.plan);
    of.plan.limits.bytes_per_lane =
        std::max<std::int64_t>(1, run_of(of, names[rng.below(names.size())]).peak_bytes);
  }
  return of;
}

TEST(FoundOrders, AreNeverSlowerThanAnyNamedScheduleThatKeepsTheLimits) {
  std::map<std::string, int> compared;
  int over = 0;
  int faster = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    const oracle::RandomCase of = draw_case(i);
    const StepRun entrain = run_of(of, "entrain");
    const StepRun fused = run_of(of, "entrain-fused");
    const std::int64_t limit = of.plan.limits.bytes_per_lane;
    std::int64_t best_ns = std::numeric_limits<std::int64_t>::max();
    for (const std::string& schedule : oracle::schedules_for(of.plan)) {
      const StepRun named = run_of(of, schedule);
      if (limit > 0 && named.peak_bytes > limit) {
        ++over;
        continue;
      }
      const auto where = [&] {
        return schedule + ", seed " + std::to_string(kSeed) + ", case " + std::to_string(i) + "\n" +
               describe(of);
      };
      ASSERT_LE(entrain.step_ns, named.step_ns) << where();
      ASSERT_TRUE(limit == 0 || entrain.peak_bytes <= limit) << where();
      if (!splits_backward(schedule)) {
        ASSERT_LE(fused.step_ns, named.step_ns) << where();
        ASSERT_TRUE(limit == 0 || fused.peak_bytes <= limit) << where();
      }
      ++compared[schedule];
      if (schedule != "entrain" && schedule != "entrain-fused") {
        best_ns = std::min(best_ns, named.step_ns);
      }
    }
    faster += entrain.step_ns < best_ns ? 1 : 0;
  }
  for (const auto& [schedule, count] : compared) {
    std::printf("%s: %d cases\n", schedule.c_str(), count);
  }
  std::printf("%d over the limit, entrain alone the fastest in %d\n", over, faster);
  EXPECT_GT(compared["zb-h2"], 2000);
  EXPECT_GT(compared["dip"], 200);
  EXPECT_GT(compared["interleaved"], 200);
  EXPECT_GT(over, 1000) << "the limits bind";
}

}  // namespace
}  // namespace entrain
