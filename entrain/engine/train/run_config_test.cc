#include "entrain/engine/train/run_config.h"

#include <fstream>

#include <gtest/gtest.h>

#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

constexpr const char* kMinimal = R"(
output = "runs/x"
steps = 100
model = "m.toml"
[data]
train = "train.csv"
global_batch = 8
)";

RunConfig parse(const std::string& text) {
  return run_config_from_json(parse_toml(text, "run.toml"), "run.toml");
}

std::string message_of(const std::string& text) {
  try {
    parse(text);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RunConfig, FillsDefaults) {
  const RunConfig config = parse(kMinimal);
  EXPECT_EQ(config.steps, 100);
  EXPECT_EQ(config.plan.policy, "entrain");
  EXPECT_EQ(config.plan.schedule, "1f1b");
  EXPECT_EQ(config.execution.trace_step, 3);
}

TEST(RunConfig, RoundTripsThroughJson) {
  const RunConfig config = parse(std::string(kMinimal) +
                                 "[plan]\nreplicas = 2\nindex = \"planned.csv\"\n"
                                 "[plan.stages]\nvision = 2\n"
                                 "[optimizer]\nlearning_rate = 0.01\n"
                                 "[checkpoint]\nevery_steps = 7\nkeep = 3\nresume = \"never\"\n"
                                 "folder = \"elsewhere\"\n");
  const RunConfig again = run_config_from_json(to_json(config), "config.json");
  EXPECT_EQ(to_json(again), to_json(config));
  EXPECT_EQ(again.plan.stages.at("vision"), 2);
  EXPECT_EQ(again.plan.index, "planned.csv");
  EXPECT_EQ(again.checkpoint.every_steps, 7);
  EXPECT_EQ(again.checkpoint.keep, 3);
  EXPECT_EQ(again.checkpoint.resume, "never");
  EXPECT_EQ(checkpoint_folder(again), "elsewhere");
}

TEST(RunConfig, ChecksTheCheckpointTable) {
  const RunConfig config = parse(kMinimal);
  EXPECT_EQ(config.checkpoint.every_steps, 0);
  EXPECT_EQ(config.checkpoint.resume, "auto");
  EXPECT_EQ(checkpoint_folder(config), "runs/x/checkpoints");
  for (const char* line : {"every_steps = -1", "keep = 0", "resume = \"\"", "evry_steps = 1"}) {
    const std::string message = message_of(concat(kMinimal, "[checkpoint]\n", line, "\n"));
    EXPECT_NE(message.find("checkpoint."), std::string::npos) << message;
  }
}

TEST(RunConfig, RefusesUnknownKeysWithSuggestion) {
  const std::string message = message_of(std::string(kMinimal) + "[optimizer]\nlearning_rat = 1\n");
  EXPECT_NE(message.find("run.toml"), std::string::npos) << message;
  EXPECT_NE(message.find("optimizer.learning_rat"), std::string::npos) << message;
  EXPECT_NE(message.find("learning_rate"), std::string::npos) << message;
}

TEST(RunConfig, KnowsTwoPrecisions) {
  EXPECT_EQ(parse(kMinimal).execution.precision, Precision::kFp32);
  const RunConfig config = parse(concat(kMinimal, "[execution]\nprecision = \"bf16\"\n"));
  EXPECT_EQ(config.execution.precision, Precision::kBf16);
  EXPECT_EQ(to_json(config)["execution"]["precision"], "bf16");
  const std::string message = message_of(concat(kMinimal, "[execution]\nprecision = \"fp16\"\n"));
  EXPECT_NE(message.find("execution.precision"), std::string::npos) << message;
  EXPECT_NE(message.find("'fp16' given; allowed: \"fp32\", \"bf16\""), std::string::npos)
      << message;
}

TEST(RunConfig, RefusesValuesOutOfRange) {
  EXPECT_NE(message_of(std::string(kMinimal) + "[optimizer]\nbeta1 = 1.0\n").find("beta1"),
            std::string::npos);
  EXPECT_NE(message_of(std::string(kMinimal) + "[plan]\nreplicas = 0\n").find("replicas"),
            std::string::npos);
  EXPECT_NE(message_of(std::string(kMinimal) + "[plan.stages]\nvision = 0\n").find("vision"),
            std::string::npos);
}

TEST(RunConfig, SetOverridesTheFile) {
  const auto path = std::filesystem::path(testing::TempDir()) / "run_config_test.toml";
  std::ofstream(path) << kMinimal;
  const RunConfig config =
      read_run_config(path, {"steps=7", "plan.policy=sequential", "optimizer.clip_norm=0.5"});
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.plan.policy, "sequential");
  EXPECT_DOUBLE_EQ(config.optimizer.clip_norm, 0.5);
  EXPECT_THROW(read_run_config(path, {"steps"}), InvalidInput);
}

TEST(LearningRate, WarmsUpThenFallsToTheFinalFraction) {
  OptimizerConfig config;
  config.learning_rate = 1.0;
  config.warmup_steps = 10;
  config.final_fraction = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 0, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 9, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 10, 110), 1.0);
  EXPECT_NEAR(learning_rate_at(config, 60, 110), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate_at(config, 110, 110), 0.1, 1e-12);
}

}  // namespace
}  // namespace entrain::engine
