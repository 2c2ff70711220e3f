#include "entrain/core/planner/drift.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/planner/lane_shares.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;
using Work = std::vector<std::int64_t>;

// Heavy-tailed samples: work falls as 1/size² from 1,000 on (Pareto), cut at a hundredth of 1 %;
// the LLM's share of a sample varies between a quarter and three quarters of the whole.
WorkTimes pareto_samples(std::uint64_t seed, int count) {
  Rng rng(seed);
  WorkTimes work(2);
  for (int i = 0; i < count; ++i) {
    const double size = 1'000 / (0.0001 + 0.9999 * rng.uniform());
    const double share = 0.25 + 0.5 * rng.uniform();
    work[0].push_back(static_cast<std::int64_t>(size * (1 - share)));
    work[1].push_back(static_cast<std::int64_t>(size * share));
  }
  return work;
}

// A step of independent samples; the encoder's work is multiplied by `factor`.
Work draw_step(const WorkTimes& samples, int batch, double factor, Rng& rng) {
  Work sum(samples.size(), 0);
  for (int i = 0; i < batch; ++i) {
    const auto row = static_cast<std::size_t>(rng.below(samples.front().size()));
    for (std::size_t m = 0; m < samples.size(); ++m) {
      sum[m] += samples[m][row];
    }
  }
  sum[0] = static_cast<std::int64_t>(static_cast<double>(sum[0]) * factor);
  return sum;
}

// Alarms in so many steps, beginning anew after each.
int count_alarms(DriftMonitor& monitor, const WorkTimes& samples, int batch, int steps, Rng& rng) {
  int alarms = 0;
  for (int step = 0; step < steps; ++step) {
    if (monitor.observe(draw_step(samples, batch, 1, rng)).has_value()) {
      ++alarms;
      monitor.restart();
    }
  }
  return alarms;
}

SplitRegion region_of(const WorkTimes& samples, int devices) {
  return split_region(share_lanes(total_work(samples), devices));
}

TEST(DriftMonitor, IsQuietAtTheMixItWasMadeFor) {
  const WorkTimes samples = pareto_samples(1, 5'000);
  for (const int devices : {8, 16, 64}) {
    DriftMonitor monitor(region_of(samples, devices), samples, 32);
    Rng rng(2, static_cast<std::uint64_t>(devices));
    EXPECT_EQ(count_alarms(monitor, samples, 32, 10'000, rng), 0) << devices;
  }
}

// The worst mix that is still inside: exactly on the boundary, where half of all steps lie outside.
TEST(DriftMonitor, KeepsItsFalseAlarmRateOnTheBoundary) {
  for (const bool heavy : {false, true}) {
    WorkTimes samples = {{9, 9, 9, 8}, {7, 6, 8, 8}};
    if (heavy) {
      samples = pareto_samples(3, 1'000);
    }
    // The boundary of 8:8 against 9:7 runs through 17:15.
    const Work all = total_work(samples);
    for (std::int64_t& work : samples[1]) {
      work *= 15 * all[0];
    }
    for (std::int64_t& work : samples[0]) {
      work *= 17 * all[1];
    }
    const SplitRegion region = split_region(std::vector<int>{8, 8});
    ASSERT_NEAR(region.margin(total_work(samples)), 0, 1e-9);
    DriftOptions options;
    options.steps_between_false_alarms = 2'000;
    DriftMonitor monitor(region, samples, 16, options);
    Rng rng(4);
    // 50 are what the contract allows in the mean.
    const int alarms = count_alarms(monitor, samples, 16, 100'000, rng);
    EXPECT_LE(alarms, 50) << heavy;
  }
}

TEST(DriftMonitor, FindsAShiftSoon) {
  const WorkTimes samples = pareto_samples(1, 5'000);
  const SplitRegion region = region_of(samples, 16);
  const Work all = total_work(samples);
  for (int run = 0; run < 5; ++run) {
    DriftMonitor monitor(region, samples, 512);
    Rng rng(5, static_cast<std::uint64_t>(run));
    for (int step = 0; step < 200; ++step) {
      ASSERT_FALSE(monitor.observe(draw_step(samples, 512, 1, rng)).has_value());
    }
    // A quarter more than what the region allows.
    const double factor = 1.25 * factor_range(region, all, 0).high;
    std::optional<DriftAlarm> alarm;
    int steps = 0;
    while (!alarm.has_value() && steps < 1'000) {
      alarm = monitor.observe(draw_step(samples, 512, factor, rng));
      ++steps;
    }
    ASSERT_TRUE(alarm.has_value());
    EXPECT_LE(steps, 40) << run;
    EXPECT_EQ(alarm->step, 200 + steps);
    EXPECT_EQ(alarm->gains, 0);
    EXPECT_EQ(alarm->loses, 1);
    EXPECT_TRUE(monitor.left());
    EXPECT_FALSE(monitor.observe(draw_step(samples, 512, factor, rng)).has_value()) << "once";
  }
}

TEST(DriftMonitor, FindsAShiftToEitherSide) {
  const WorkTimes samples = {Work(100, 100), Work(100, 60)};  // no variation at all
  DriftOptions options;
  options.window = 1;
  DriftMonitor monitor(split_region(std::vector<int>{10, 6}), samples, 8, options);
  const auto steps_to_alarm = [&](const Work& step) {
    monitor.restart();
    for (int i = 1; i <= 100; ++i) {
      if (const auto alarm = monitor.observe(step)) {
        EXPECT_EQ(alarm->asks_for, share_lanes(step, 16));
        return alarm->gains == 0 ? i : -i;
      }
    }
    return 0;
  };
  EXPECT_EQ(steps_to_alarm({1000, 600}), 0);
  EXPECT_EQ(steps_to_alarm({1045, 555}), 0);  // 10.45
  const int up = steps_to_alarm({1060, 540});
  EXPECT_GE(up, 1);
  EXPECT_LE(up, 20);
  const int down = steps_to_alarm({940, 660});
  EXPECT_LE(down, -1);
  EXPECT_GE(down, -20);
}

TEST(DriftMonitor, ShowsTheSharesOfItsWindow) {
  DriftOptions options;
  options.window = 2;
  DriftMonitor monitor(split_region(std::vector<int>{3, 1}), {{3}, {1}}, 1, options);
  EXPECT_EQ(monitor.shares(), (std::vector<double>{0, 0}));
  monitor.observe(Work{100, 0});
  monitor.observe(Work{30, 10});
  monitor.observe(Work{10, 30});
  EXPECT_EQ(monitor.shares(), (std::vector<double>{2, 2}));
}

TEST(DriftMonitor, RefusesWhatCannotBe) {
  const SplitRegion region = split_region(std::vector<int>{3, 1});
  error_of<InvalidInput>([&] { DriftMonitor(region, {{1}, {1}, {1}}, 1); });
  error_of<InvalidInput>([&] { DriftMonitor(region, {{}, {}}, 1); });
  error_of<InvalidInput>([&] { DriftMonitor(region, {{1}, {1}}, 0); });
  error_of<InvalidInput>([&] { DriftMonitor(region, {{1}, {1}}, 1, {.window = 0}); });
  error_of<InvalidInput>([&] {
    DriftMonitor(region, {{1}, {1}}, 1, {.steps_between_false_alarms = 1});
  });
}

Plan make_plan(int vision_stages, int llm_stages) {
  Plan plan;
  plan.modules = {{"vision", 1, 1, {}}, {"llm", 1, 1, {}}};
  plan.modules[0].stages.resize(static_cast<std::size_t>(vision_stages));
  plan.modules[1].stages.resize(static_cast<std::size_t>(llm_stages));
  plan.lanes = default_lanes(plan.modules);
  return plan;
}

TEST(PlanRegion, CountsLanesInTheirCommonUnit) {
  Plan plan = make_plan(5, 3);
  EXPECT_EQ(plan_region(plan)->devices_of, (std::vector<int>{5, 3}));
  plan.modules[0].tensor_parallel = 2;
  plan.modules[1].tensor_parallel = 2;
  EXPECT_EQ(plan_region(plan)->devices_of, (std::vector<int>{5, 3}));
  plan.modules[1].context_parallel = 2;
  EXPECT_EQ(plan_region(plan)->devices_of, (std::vector<int>{5, 6}));
  Plan interleaved = make_plan(4, 1);
  interleaved.lanes = {{{0, 0}, {0, 2}}, {{0, 1}, {0, 3}}, {{1, 0}}};
  EXPECT_EQ(plan_region(interleaved)->devices_of, (std::vector<int>{2, 1}));
}

TEST(PlanRegion, HasNoneWhereModulesShareALane) {
  Plan plan = make_plan(1, 1);
  plan.lanes = {{{0, 0}, {1, 0}}};
  EXPECT_FALSE(plan_region(plan).has_value());
}

}  // namespace
}  // namespace entrain
