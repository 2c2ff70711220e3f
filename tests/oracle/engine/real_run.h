// Twenty steps on real samples under a pipeline, against plain training in one process.
#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Parallel.h>

#include "entrain/engine/train/prepare_run.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/plain_training.h"
#include "tests/oracle/shards.h"

namespace entrain::oracle {

// Those that data sets beside the repository train on; empty without them.
inline std::vector<std::filesystem::path> shards_of(const char* data_set) {
  std::vector<std::filesystem::path> shards;
  const std::filesystem::path folder = shared_folder() / "data" / data_set;
  if (std::filesystem::exists(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with("train-")) {
        shards.push_back(entry.path());
      }
    }
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

// The LLM that real runs of the tests have; their encoders go in front.
inline constexpr const char* kSmallLlm = R"(
[llm]
num_layers = 2
hidden = 48
num_heads = 4
num_kv_heads = 2
intermediate = 96
vocab_size = 264
max_tokens = 2048
)";

// Writes model.toml (`encoders` before kSmallLlm) and train.csv into the folder; two replicas of
// `stages`.
inline void expect_training(const TemporaryFolder& folder,
                            const std::string& encoders,
                            const std::vector<std::filesystem::path>& data,
                            const std::map<std::string, int>& stages) {
  at::set_num_threads(1);
  folder.write("model.toml", "name = \"small\"\n" + encoders + kSmallLlm);
  build_index(data, folder.path() / "train.csv", {});
  engine::RunConfig config;
  config.output = (folder.path() / "run").string();
  config.steps = 20;
  config.seed = 3;
  config.model_file = (folder.path() / "model.toml").string();
  config.data.train = (folder.path() / "train.csv").string();
  config.data.global_batch = 32;
  config.plan.replicas = 2;
  config.plan.num_slots = 4;
  config.plan.stages = stages;
  config.plan.evaluations = 50;
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.warmup_steps = 5;
  config.execution.trace_step = -1;
  const engine::RunSetup setup = engine::prepare_run(config);
  const std::atomic<bool> interrupted{false};
  engine::train(setup, interrupted);
  expect_plain_training(setup);
}

}  // namespace entrain::oracle
