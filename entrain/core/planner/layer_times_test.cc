#include "entrain/core/planner/layer_times.h"

#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/plan.h"

#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

// Whole nanoseconds, so that nothing is rounded.
Profile whole_ns_profile(const ModelSpec& model) {
  return oracle::uniform_profile(model, {0, 10, 1000}, {0, 20, 300}, {0, 30, 50});
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::int64_t time_of(const StageCosts& stage, std::int64_t launches) {
  std::int64_t total = launches * (stage.launch.forward + stage.launch.backward()).count();
  for (const UnitCost& unit : stage.units) {
    total += (unit.time.forward + unit.time.backward()).count();
  }
  return total;
}

TEST(LayerTimes, SumToTheModulesTime) {
  for (const bool frozen : {false, true}) {
    ModelSpec model = oracle::tiny_model(1, 3, 4);
    model.encoders[0].frozen = frozen;
    const Profile profile = whole_ns_profile(model);
    std::vector<SampleWork> work(2);
    work[0] = {
        .segments = {{{8, 64, 2}, {4, 16, 1}}}, .videos = {}, .llm_tokens = 9, .target_tokens = 3};
    work[1] = {.segments = {{}}, .videos = {}, .llm_tokens = 5, .target_tokens = 4};
    const LayerTimes times = layer_times(step_costs(model, layer_plan(model), profile, work), 7);
    const StepCosts whole = step_costs(model, even_plan(model, {1, 1}, 1, 1), profile, work);
    ASSERT_EQ(times.size(), 2U);
    for (std::size_t module = 0; module < 2; ++module) {
      EXPECT_EQ(std::ssize(times[module]), num_layers(model, static_cast<int>(module)));
      EXPECT_EQ(sum(times[module]), time_of(whole.modules[module].stages[0], 7)) << frozen;
    }
  }
}

TEST(LayerTimes, HoldsNoLaunchThatIsNotAskedFor) {
  const ModelSpec model = oracle::tiny_model(1, 1, 1);
  const std::vector<SampleWork> text = {
      {.segments = {{}}, .videos = {}, .llm_tokens = 5, .target_tokens = 4}};
  const StepCosts costs = step_costs(model, layer_plan(model), whole_ns_profile(model), text);
  EXPECT_EQ(sum(layer_times(costs, 0)[0]), 0);
  EXPECT_GT(sum(layer_times(costs, 1)[0]), 0);
}

}  // namespace
}  // namespace entrain
