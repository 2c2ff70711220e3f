// Twenty training steps on real images under a pipeline, against plain training in one process.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "entrain/engine/train/run_setup.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/plain_training.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

constexpr int kSteps = 20;

constexpr const char* kModel = R"(
name = "vlm-small-test"
[vision]
num_layers = 2
hidden = 32
num_heads = 2
intermediate = 64
patch_size = 14
merge_size = 2
min_pixels = 784
max_pixels = 50176
[llm]
num_layers = 2
hidden = 48
num_heads = 4
num_kv_heads = 2
intermediate = 96
vocab_size = 264
max_tokens = 2048
)";

RunConfig run_config(const std::filesystem::path& folder) {
  RunConfig config;
  config.output = (folder / "run").string();
  config.steps = kSteps;
  config.seed = 3;
  config.model_file = (folder / "model.toml").string();
  config.data.train = (folder / "train.csv").string();
  config.data.global_batch = 32;
  config.plan.replicas = 2;
  config.plan.num_slots = 4;
  config.plan.stages = {{"vision", 1}, {"llm", 2}};
  config.plan.evaluations = 50;
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.warmup_steps = 5;
  config.execution.trace_step = -1;
  return config;
}

TEST(VlmSmall, TwentyStepsUnderAPipelineEqualPlainTraining) {
  const std::filesystem::path shards = oracle::shared_folder() / "data" / "vlm-small";
  if (!std::filesystem::exists(shards)) {
    GTEST_SKIP() << "the vlm-small data set is not beside the repository";
  }
  at::set_num_threads(1);
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "vlm_small_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model.toml") << kModel;
  std::vector<std::filesystem::path> data;
  for (const auto& entry : std::filesystem::directory_iterator(shards)) {
    if (entry.path().filename().string().starts_with("train-")) {
      data.push_back(entry.path());
    }
  }
  std::sort(data.begin(), data.end());
  build_index(data, folder / "train.csv", {});
  const RunSetup setup = prepare_run(run_config(folder));
  const std::atomic<bool> interrupted{false};
  train(setup, interrupted);
  oracle::expect_plain_training(setup);
}

}  // namespace
}  // namespace entrain::engine
