// Twenty training steps on real images under a pipeline, against plain training in one process.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "entrain/core/dataset/global_batch.h"

#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/optimizer.h"
#include "entrain/engine/train/run_setup.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/reference_model.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

constexpr int kSteps = 20;
constexpr double kTolerance = 1e-5;

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

// The step's samples as the reference reads them, in drawn order or its reverse.
std::vector<oracle::ReferenceSample> reference_batch(const DataSet& data,
                                                     ReadAhead& reader,
                                                     std::vector<int> batch) {
  StepNeeds needs;
  needs.batch = batch;
  for (int s = 0; s < static_cast<int>(batch.size()); ++s) {
    needs.texts.push_back(s);
    const auto& segments =
        data.work[static_cast<std::size_t>(batch[static_cast<std::size_t>(s)])].segments[0];
    for (int k = 0; k < static_cast<int>(segments.size()); ++k) {
      needs.segments.push_back({0, s, k});
    }
  }
  const auto step_data = reader.queue(needs);
  std::vector<oracle::ReferenceSample> samples(batch.size());
  for (const SegmentNeed& need : needs.segments) {
    SegmentData segment = step_data->segment(0, need.sample, need.segment);
    samples[static_cast<std::size_t>(need.sample)].images.push_back(
        {0, segment.patches, segment.rows, segment.columns, 0});
  }
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const TokenizedSample& text = step_data->text(static_cast<int>(s));
    samples[s].ids = text.ids;
    samples[s].target_begin = text.target_begin;
    for (std::size_t k = 0; k < samples[s].images.size(); ++k) {
      samples[s].images[k].feature_begin = text.feature_begin[k];
    }
  }
  return samples;
}

double clip(oracle::NamedWeights& gradients, double limit) {
  double square = 0;
  for (const auto& [name, gradient] : gradients) {
    square += gradient.to(at::kDouble).square().sum().item<double>();
  }
  const double norm = std::sqrt(square);
  if (limit > 0 && norm > limit) {
    for (auto& [name, gradient] : gradients) {
      gradient.mul_(limit / norm);
    }
  }
  return norm;
}

// Plain training: one process, one sample at a time.
std::vector<double> reference_losses(const RunSetup& setup, bool reversed) {
  oracle::NamedWeights weights = oracle::initial_weights(setup.model, setup.config.seed);
  std::vector<NamedParameter> parameters;
  for (auto& [name, tensor] : weights) {
    tensor.set_requires_grad(true);
    parameters.push_back({name, tensor});
  }
  AdamW optimizer(parameters, setup.config.optimizer);
  ReadAhead reader(setup.train.index, setup.model, {});
  GlobalBatchSampler sampler(static_cast<int>(setup.train.index.samples.size()),
                             setup.config.data.global_batch,
                             setup.config.seed);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    std::vector<int> batch = sampler.batch(step);
    if (reversed) {
      std::reverse(batch.begin(), batch.end());
    }
    const auto samples = reference_batch(setup.train, reader, batch);
    oracle::NamedWeights detached;
    for (const auto& [name, tensor] : weights) {
      detached[name] = tensor.detach();
    }
    oracle::ReferenceResult result = oracle::reference_step(setup.model, detached, samples);
    losses.push_back(result.loss);
    clip(result.gradients, setup.config.optimizer.clip_norm);
    for (NamedParameter& parameter : parameters) {
      parameter.tensor.mutable_grad() = result.gradients.at(parameter.name);
    }
    optimizer.step(learning_rate_at(setup.config.optimizer, step, kSteps));
  }
  return losses;
}

std::vector<double> logged_losses(const std::filesystem::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::vector<double> losses;
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line);
    if (record.contains("loss")) {
      losses.push_back(record["loss"].get<double>());
    }
  }
  return losses;
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
  const std::vector<double> losses = logged_losses(folder / "run");
  const std::vector<double> reference = reference_losses(setup, false);
  const std::vector<double> reordered = reference_losses(setup, true);
  ASSERT_EQ(losses.size(), reference.size());
  // Ten steps to 1e-5; later twice the gap that another order of summation opens by itself.
  double gap = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    gap = std::max(gap, std::abs(reference[step] - reordered[step]));
    const double allowed = step < 10 ? kTolerance : std::max(kTolerance, 2 * gap);
    EXPECT_NEAR(losses[step], reference[step], allowed) << "step " << step;
    std::cout << "step " << step << ": pipeline " << losses[step] << ", reference "
              << reference[step] << ", difference " << losses[step] - reference[step]
              << ", reordered " << reordered[step] - reference[step] << "\n";
  }
  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace
}  // namespace entrain::engine
