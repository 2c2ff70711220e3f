#include "entrain/engine/train/recompute_policy.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/planner/recompute_levels.h"

#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

// Vision: four layers; the LLM: four, on two stages.
class Recompute : public testing::Test {
 protected:
  Recompute() { run_.config.plan.stages = {{"llm", 2}}; }

  std::vector<std::vector<int>> counts_under(const RecomputePolicy& policy) {
    run_.config.execution.recompute = policy;
    std::vector<std::vector<int>> counts;
    const RunSetup setup = prepare_run(run_.config);
    for (const ModulePlan& module : setup.plan.modules) {
      std::vector<int> of_module;
      for (std::size_t stage = 0; stage < module.stages.size(); ++stage) {
        of_module.push_back(module.recomputed(static_cast<int>(stage)));
      }
      counts.push_back(of_module);
    }
    return counts;
  }
  std::int64_t peak_under(const RecomputePolicy& policy) {
    run_.config.execution.recompute = policy;
    const RunSetup setup = prepare_run(run_.config);
    std::int64_t peak = 0;
    for (std::int64_t step = 0; step < 4; ++step) {
      const PreparedStep prepared = prepare_step(setup, step);
      for (const LaneUsage& lane : prepared.predicted.lanes[0]) {
        peak = std::max(peak, lane.peak_bytes);
      }
    }
    return peak;
  }

  tiny::RunFolder run_;
};

using Counts = std::vector<std::vector<int>>;

TEST_F(Recompute, CountsLayersAsAsked) {
  EXPECT_EQ(counts_under({RecomputeKind::kNone, 0}), (Counts{{0}, {0, 0}}));
  EXPECT_EQ(counts_under({RecomputeKind::kFull, 0}), (Counts{{4}, {2, 2}}));
  EXPECT_EQ(counts_under({RecomputeKind::kEvery, 1}), (Counts{{4}, {2, 2}}));
  EXPECT_EQ(counts_under({RecomputeKind::kEvery, 2}), (Counts{{2}, {1, 1}}));
  EXPECT_EQ(counts_under({RecomputeKind::kEvery, 3}), (Counts{{2}, {1, 1}}));
  EXPECT_EQ(counts_under({RecomputeKind::kEvery, 9}), (Counts{{1}, {1, 1}}));
}

TEST_F(Recompute, LeavesThePlansOwnCountsOrReplacesThem) {
  Plan plan = prepare_run(run_.config).plan;
  plan.modules[0].recompute = {3};
  run_.config.plan.file = run_.write("plan.json", to_json(plan).dump()).string();
  EXPECT_EQ(counts_under({}), (Counts{{3}, {0, 0}}));
  EXPECT_EQ(counts_under({RecomputeKind::kNone, 0}), (Counts{{0}, {0, 0}}));
}

// `entrain` looks for an assignment within the limits; others take none of them into account.
class RecomputeToFit : public Recompute, public testing::WithParamInterface<const char*> {};

TEST_P(RecomputeToFit, TakesAsFewLayersAsItCan) {
  run_.config.plan.policy = GetParam();
  const std::int64_t none = peak_under({RecomputeKind::kNone, 0});
  const std::int64_t full = peak_under({RecomputeKind::kFull, 0});
  ASSERT_LT(full, none);
  Plan plan = prepare_run(run_.config).plan;
  const auto fit_to = [&](std::int64_t bytes) {
    plan.limits.bytes_per_lane = bytes;
    run_.config.plan.file = run_.write("plan.json", to_json(plan).dump()).string();
    run_.config.execution.recompute = {RecomputeKind::kFit, 0};
    return recomputed_layers(prepare_run(run_.config).plan);
  };
  EXPECT_EQ(fit_to(2 * none), 0);
  std::int64_t limit = full + (none - full) / 4;
  int some = fit_to(limit);
  for (; some == 0; some = fit_to(limit)) {  // the policy found slots that fit
    limit -= full / 20;
  }
  EXPECT_LT(some, 8);
  EXPECT_LE(peak_under({RecomputeKind::kFit, 0}), limit);
  const std::string message = error_of<NothingFits>([&] { fit_to(full / 20); });
  EXPECT_NE(message.find("even where every layer is recomputed: step 0: "), std::string::npos)
      << message;
}

INSTANTIATE_TEST_SUITE_P(OfPolicies,
                         RecomputeToFit,
                         testing::Values("entrain", "lpt-2d", "sequential"));

TEST_F(Recompute, NeedsALimitToFit) {
  run_.config.execution.recompute = {RecomputeKind::kFit, 0};
  const std::string message = error_of<InvalidInput>([&] { prepare_run(run_.config); });
  EXPECT_NE(message.find("plan.bytes_per_lane_mib"), std::string::npos) << message;
}

TEST_F(Recompute, ChangesNoLoss) {
  const auto loss_under = [&](const RecomputePolicy& policy, const char* name) {
    RunConfig config = run_.config;
    config.output = run_.path(name).string();
    config.plan.policy = "sequential";  // whose assignment does not depend on costs
    config.execution.recompute = policy;
    const std::atomic<bool> interrupted{false};
    return train(prepare_run(config), interrupted).last_loss;
  };
  EXPECT_EQ(loss_under({RecomputeKind::kFull, 0}, "full"),
            loss_under({RecomputeKind::kNone, 0}, "none"));
}

TEST_F(Recompute, IsReadAndWritten) {
  const auto read = [&](const Json& value) {
    Json document = to_json(run_.config);
    document["execution"]["recompute"] = value;
    const RunConfig config = run_config_from_json(document, "run.toml");
    EXPECT_EQ(to_json(config)["execution"]["recompute"], value);
    return config.execution.recompute;
  };
  EXPECT_EQ(read("plan").kind, RecomputeKind::kPlan);
  EXPECT_EQ(read("fit").kind, RecomputeKind::kFit);
  EXPECT_EQ(read(3).kind, RecomputeKind::kEvery);
  EXPECT_EQ(read(3).every, 3);
  for (const Json& wrong : {Json(0), Json("some"), Json(1.5)}) {
    const std::string message = error_of<InvalidInput>([&] { read(wrong); });
    EXPECT_NE(message.find("execution.recompute"), std::string::npos) << message;
    EXPECT_NE(message.find("\"fit\", or n >= 1"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace entrain::engine
