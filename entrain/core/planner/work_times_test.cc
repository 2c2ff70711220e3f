#include "entrain/core/planner/work_times.h"

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/cost/analytic.h"

#include "tests/oracle/random_cases.h"
#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

TEST(WorkTimes, AddsUpToTheWorkOfEveryUnit) {
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    const oracle::RandomCase random_case = oracle::make_random_case(rng);
    const StepCosts& costs = random_case.costs;
    const WorkTimes times = work_times(costs);
    const std::vector<std::int64_t> totals = total_work(times);
    ASSERT_EQ(times.size(), costs.modules.size());
    for (std::size_t m = 0; m < costs.modules.size(); ++m) {
      ASSERT_EQ(std::ssize(times[m]), costs.num_samples);
      std::int64_t expected = 0;
      for (const StageCosts& stage : costs.modules[m].stages) {
        for (const UnitCost& unit : stage.units) {
          expected += (unit.time.forward + unit.time.backward()).count();
        }
      }
      EXPECT_EQ(totals[m], expected) << describe(random_case);
    }
    const auto llm = static_cast<std::size_t>(costs.llm_module());
    std::int64_t first = 0;
    for (const StageCosts& stage : costs.modules[llm].stages) {
      first += (stage.units[0].time.forward + stage.units[0].time.backward()).count();
    }
    EXPECT_EQ(times[llm][0], first) << describe(random_case);
  }
}

TEST(WorkTimes, DoesNotDependOnBlocks) {
  Rng rng(4);
  oracle::RandomCaseOptions options;
  options.max_samples = 6;
  for (int i = 0; i < 20; ++i) {
    const oracle::RandomCase random_case = oracle::make_random_case(rng, options);
    const WorkTimes once = work_times(random_case.costs);
    const int samples = random_case.costs.num_samples;
    // The same few samples again and again, for more than one block.
    std::vector<int> asked;
    const WorkTimes blocks = work_times(100 * samples, [&](int begin, int end) {
      EXPECT_EQ(begin, asked.empty() ? 0 : asked.back());
      asked.push_back(end);
      StepCosts costs = random_case.costs;
      costs.num_samples = 1;  // the block's first sample stands for all of it
      return costs;
    });
    EXPECT_EQ(asked.back(), 100 * samples);
    for (std::size_t m = 0; m < once.size(); ++m) {
      EXPECT_EQ(blocks[m].size(), asked.size());
      EXPECT_EQ(blocks[m].back(), once[m].front());
    }
  }
}

TEST(TotalWork, CountsRepeatedRows) {
  const WorkTimes times = {{1, 20, 300}, {7, 0, 5}};
  EXPECT_EQ(total_work(times), (std::vector<std::int64_t>{321, 12}));
  EXPECT_EQ(total_work(times, std::vector<int>{2, 0, 2}), (std::vector<std::int64_t>{601, 17}));
}

TEST(HoldWeights, AreTheWorkOfAllModulesOnOneDeviceModel) {
  const ModelSpec model = oracle::tiny_model(1, 2, 2);
  const Profile profile = analytic_profile(model, device_model("a40"));
  std::vector<SampleWork> work(2);
  for (SampleWork& sample : work) {
    sample.segments.resize(model.encoders.size());
    sample.llm_tokens = 40;
    sample.target_tokens = 10;
  }
  work[1].segments[0].push_back({.tokens = 16, .llm_tokens = 4});
  const WorkTimes times = work_times(model, profile, work);
  const std::vector<std::int64_t> weights = hold_weights(model, work);
  ASSERT_EQ(weights.size(), 2U);
  for (std::size_t sample = 0; sample < 2; ++sample) {
    std::int64_t sum = 0;
    for (const auto& module : times) {
      sum += module[sample];
    }
    EXPECT_EQ(weights[sample], sum);
  }
  EXPECT_LT(weights[0], weights[1]);
}

}  // namespace
}  // namespace entrain
