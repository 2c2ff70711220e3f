#include "entrain/core/study/baselines.h"

#include <fstream>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/cost/memory.h"

#include "tests/oracle/study_files.h"

namespace entrain {
namespace {

class BaselinePlans : public testing::Test {
 protected:
  BaselinePlans() {
    const std::filesystem::path cluster = files_.folder() / "cluster.toml";
    std::ofstream(cluster) << "name = \"tiny\"\ndevices_per_node = 4\ndevice = \"cpu-2core\"\n";
    inputs_ = files_.index_inputs();
    inputs_.cluster = cluster.string();
    study_ = load_study(inputs_);
    request_.lanes = 3;
    request_.replicas = 2;
    request_.search.policy = "lpt-2d";
    complete_request(study_, 2, request_.search);
  }

  Plan plan_of(const std::string& planner) {
    request_.planner = planner;
    return baseline_plan(study_, request_);
  }

  oracle::StudyFiles files_;
  StudyInputs inputs_;
  Study study_;
  BaselineRequest request_;
};

TEST_F(BaselinePlans, AreValidForEveryName) {
  for (const std::string& planner : baseline_planner_names()) {
    const Plan plan = plan_of(planner);
    EXPECT_NO_THROW(validate(plan, study_.model, planner));
    EXPECT_EQ(plan.policy, "lpt-2d");
    if (planner == "one-sample" || planner == "four-samples" || planner == "megatron-even") {
      EXPECT_EQ(plan.num_lanes(), 3);
      EXPECT_EQ(plan.replicas, 2);
    } else {
      EXPECT_EQ(plan.replicas * plan.num_lanes() % 4, 0);
    }
  }
}

TEST_F(BaselinePlans, KeepToWhatDevicesHaveLeft) {
  for (const std::string& planner : baseline_planner_names()) {
    EXPECT_TRUE(plan_of(planner).limits.lane_bytes.empty()) << "no limit stated";
  }
  ClusterSpec cluster = *request_.search.cluster;
  cluster.memory_bytes = std::int64_t{1} << 30;
  request_.search.cluster = &cluster;
  for (const std::string planner : {"one-sample", "four-samples", "megatron-even"}) {
    const Plan plan = plan_of(planner);
    const std::vector<StateBytes> states = lane_states(study_.model, plan, request_.search.state);
    ASSERT_EQ(plan.limits.lane_bytes.size(), states.size());
    for (std::size_t lane = 0; lane < states.size(); ++lane) {
      EXPECT_EQ(plan.limits.lane_bytes[lane], cluster.memory_bytes - states[lane].total_bytes());
    }
  }
  cluster.memory_bytes = 1000;
  EXPECT_THROW(plan_of("one-sample"), NothingFits);
}

TEST_F(BaselinePlans, ShareOptimizersOutWhereAskedTo) {
  for (const bool sharded : {false, true}) {
    request_.search.state.shard_optimizer = sharded;
    for (const std::string& planner : baseline_planner_names()) {
      EXPECT_EQ(plan_of(planner).shard_optimizer, sharded) << planner;
    }
  }
}

TEST_F(BaselinePlans, AreMadeFromMoreOrFewerSamples) {
  EXPECT_EQ(plan_of("one-sample").modules.size(), study_.model.encoders.size() + 1);
  EXPECT_NE(plan_of("megatron-even").modules[0].stages, std::vector<LayerRange>{});
}

TEST_F(BaselinePlans, OfPeersDifferInWhatSharesLanes) {
  const Plan shared = plan_of("orchmllm");
  EXPECT_EQ(shared.lanes, (std::vector<std::vector<StageRef>>{{{0, 0}, {1, 0}}}));
  EXPECT_EQ(shared.replicas, 4);
  const Plan own = plan_of("dflop");
  for (const std::vector<StageRef>& lane : own.lanes) {
    EXPECT_EQ(lane.size(), 1U);
  }
}

TEST_F(BaselinePlans, RefuseWhatTheyCannotPlan) {
  EXPECT_THROW(plan_of("nobody"), InvalidInput);
  request_.search.cluster = nullptr;
  for (const char* planner : {"b-min", "dflop", "orchmllm"}) {
    EXPECT_THROW(plan_of(planner), InvalidInput) << planner;
  }
  request_.lanes = 1000;
  EXPECT_THROW(plan_of("one-sample"), InvalidInput);
  EXPECT_THROW(baseline_plan(load_study(files_.table_inputs()), request_), InvalidInput);
}

}  // namespace
}  // namespace entrain
