#include "entrain/core/planner/batch_sum.h"

#include <gtest/gtest.h>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/plan_scorer.h"

#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

// What a stage takes is linear in the sums, up to the rounding of every unit.
// Returns the forward times of all stages.
std::int64_t expect_same_costs(const StepCosts& costs, const StepCosts& of_sum) {
  std::int64_t forward = 0;
  for (std::size_t module = 0; module < costs.modules.size(); ++module) {
    for (std::size_t stage = 0; stage < costs.modules[module].stages.size(); ++stage) {
      OperationTimes times;
      std::int64_t bytes = 0;
      const SharedVector<UnitCost>& units = costs.modules[module].stages[stage].units;
      for (const UnitCost& unit : units) {
        times += unit.time;
        bytes += unit.activation_bytes;
      }
      forward += times.forward.count();
      const UnitCost& whole = of_sum.modules[module].stages[stage].units.front();
      const auto slack = static_cast<double>(units.size());
      EXPECT_NEAR(static_cast<double>(whole.time.forward.count()),
                  static_cast<double>(times.forward.count()),
                  slack);
      EXPECT_NEAR(static_cast<double>(whole.time.backward().count()),
                  static_cast<double>(times.backward().count()),
                  2 * slack);
      EXPECT_NEAR(static_cast<double>(whole.activation_bytes), static_cast<double>(bytes), slack);
    }
  }
  return forward;
}

TEST(BatchSum, CostsWhatItsSamplesCost) {
  Rng rng(20261122);
  for (int i = 0; i < 50; ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 4);
    const PlanSearchRequest request = plan_case.request_of();
    const PlanScorer scorer(request);
    const std::vector<SampleWork>& batch = request.batches.front();
    const std::vector<SampleWork> sum = {batch_sum(batch)};
    for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      const Plan plan = scorer.make_candidate(config).plan;
      if (!plan.modules.empty()) {
        EXPECT_GT(expect_same_costs(step_costs(plan_case.model, plan, plan_case.profile, batch),
                                    step_costs(plan_case.model, plan, plan_case.profile, sum)),
                  0);
      }
    }
  }
}

}  // namespace
}  // namespace entrain
