#include "entrain/engine/train/run_checks.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"

#include "tests/oracle/engine/tiny_run.h"

namespace entrain::engine {
namespace {

class RunChecks : public testing::Test {
 protected:
  RunChecks() { run_.config.optimizer.warmup_steps = 2; }

  // Those of prepare_run() that hold `part`.
  [[nodiscard]] std::vector<std::string> warnings_with(const std::string& part) const {
    std::vector<std::string> found = prepare_run(run_.config).warnings;
    std::erase_if(found,
                  [&](const std::string& text) { return text.find(part) == std::string::npos; });
    return found;
  }

  tiny::RunFolder run_;
};

TEST_F(RunChecks, SayNothingOfAnOrdinaryRun) {
  for (const char* part : {"num_slots", "warmup_steps", "model_digest"}) {
    EXPECT_TRUE(warnings_with(part).empty()) << part;
  }
}

TEST_F(RunChecks, NameAWarmUpThatNeverEnds) {
  run_.config.optimizer.learning_rate = 1e-3;
  run_.config.optimizer.warmup_steps = 5;
  const std::vector<std::string> found = warnings_with("warmup_steps");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0],
            "optimizer.warmup_steps = 5 is more than the run's 4 updates: the learning rate "
            "reaches 0.0008 of 0.001");
  run_.config.optimizer.warmup_steps = 4;
  EXPECT_TRUE(warnings_with("warmup_steps").empty());
  run_.config.optimizer.update_every = 2;
  EXPECT_EQ(warnings_with("2 updates").size(), 1U);
  run_.config.optimizer.update_every = 1;
  run_.config.optimizer.modules["vision"].warmup_steps = 9;
  EXPECT_EQ(warnings_with("optimizer.modules.vision.warmup_steps = 9").size(), 1U);
}

TEST_F(RunChecks, NameSlotsWithoutSamples) {
  run_.config.plan.num_slots = 7;
  EXPECT_EQ(warnings_with("num_slots = 7").size(), 1U);
  run_.config.plan.num_slots = 6;
  EXPECT_TRUE(warnings_with("num_slots").empty());
}

TEST_F(RunChecks, NameAProfileOfNoModel) {
  Profile profile = prepare_run(run_.config).profile;
  profile.model_digest = "";
  run_.config.plan.profile = run_.write("profile.json", to_json(profile).dump()).string();
  EXPECT_EQ(warnings_with("profile.json' has no model_digest").size(), 1U);
}

TEST_F(RunChecks, NameRanksThatShareFewCores) {
  RunConfig config = run_.config;
  EXPECT_EQ(crowd_warning(config, 8, 2), "");
  EXPECT_NE(crowd_warning(config, 300, 2).find("300 ranks compute on this host's 2 cores, 150 on"),
            std::string::npos);
  config.execution.paced = true;
  EXPECT_EQ(crowd_warning(config, 300, 2), "");
  config.execution.paced = false;
  config.execution.device = "cuda";
  EXPECT_EQ(crowd_warning(config, 300, 2), "");
}

}  // namespace
}  // namespace entrain::engine
