#include "tests/oracle/engine/plain_training.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/dataset/global_batch.h"

#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/optimizer.h"

namespace entrain::oracle {
namespace {

using engine::ReadAhead;
using engine::RunSetup;
using engine::SegmentNeed;

constexpr double kTolerance = 1e-5;

// The step's samples as the reference reads them, in drawn order or its reverse.
std::vector<ReferenceSample> reference_batch(const engine::DataSet& data,
                                             ReadAhead& reader,
                                             const std::vector<int>& batch) {
  engine::StepNeeds needs;
  needs.batch = batch;
  for (int s = 0; s < static_cast<int>(batch.size()); ++s) {
    needs.texts.push_back(s);
    const auto& modules =
        data.work[static_cast<std::size_t>(batch[static_cast<std::size_t>(s)])].segments;
    for (int module = 0; module < static_cast<int>(modules.size()); ++module) {
      const auto count = static_cast<int>(modules[static_cast<std::size_t>(module)].size());
      for (int k = 0; k < count; ++k) {
        needs.segments.push_back({module, s, k});
      }
    }
  }
  const auto step_data = reader.queue(needs);
  std::vector<ReferenceSample> samples(batch.size());
  for (const SegmentNeed& need : needs.segments) {
    const engine::SegmentData segment = step_data->segment(need.module, need.sample, need.segment);
    samples[static_cast<std::size_t>(need.sample)].segments.push_back(
        {need.module, segment.input, segment.rows, segment.columns, 0});
  }
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const TokenizedSample& text = step_data->text(static_cast<int>(s));
    samples[s].ids = text.ids;
    samples[s].targets = text.targets;
    std::vector<ReferenceSegment>& segments = samples[s].segments;
    for (std::size_t k = 0; k < segments.size(); ++k) {
      segments[k].feature_begin = text.feature_begin[k];
    }
    std::stable_sort(segments.begin(), segments.end(), [](const auto& a, const auto& b) {
      return a.feature_begin < b.feature_begin;
    });
  }
  return samples;
}

double clip(NamedWeights& gradients, double limit) {
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
  NamedWeights weights = initial_weights(setup.model, setup.config.seed);
  std::vector<engine::TrainedPiece> trained;
  std::int64_t size = 0;
  for (auto& [name, tensor] : weights) {
    trained.push_back({.name = name,
                       .part = "",
                       .matrix = tensor.dim() >= 2,
                       .begin = size,
                       .value = tensor.view(-1),
                       .gradient = at::zeros({tensor.numel()})});
    size += tensor.numel();
  }
  engine::AdamW optimizer(trained, size, setup.config.optimizer);
  ReadAhead reader(setup.train.index, setup.model, {});
  GlobalBatchSampler sampler = engine::batches_of(setup);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < setup.config.steps; ++step) {
    std::vector<int> batch = sampler.batch(step);
    if (reversed) {
      std::reverse(batch.begin(), batch.end());
    }
    const auto samples = reference_batch(setup.train, reader, batch);
    ReferenceResult result = reference_step(setup.model, weights, samples);
    losses.push_back(result.loss);
    clip(result.gradients, setup.config.optimizer.clip_norm);
    for (const engine::TrainedPiece& piece : trained) {
      piece.gradient.copy_(result.gradients.at(piece.name).flatten());
    }
    optimizer.step(step, setup.config.steps);
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

}  // namespace

void expect_plain_training(const RunSetup& setup) {
  const std::vector<double> losses = logged_losses(setup.config.output);
  const std::vector<double> reference = reference_losses(setup, false);
  const std::vector<double> reordered = reference_losses(setup, true);
  ASSERT_EQ(losses.size(), reference.size());
  double gap = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    gap = std::max(gap, std::abs(reference[step] - reordered[step]));
    const double allowed = step < 10 ? kTolerance : std::max(kTolerance, 2 * gap);
    EXPECT_NEAR(losses[step], reference[step], allowed) << "step " << step;
    std::printf("step %zu: pipeline %.7f, reference %.7f, difference %.1e, reordered %.1e\n",
                step,
                losses[step],
                reference[step],
                losses[step] - reference[step],
                reordered[step] - reference[step]);
  }
  EXPECT_LT(losses.back(), losses.front());
}

double plain_loss(const ModelSpec& model,
                  const engine::DataSet& data,
                  const NamedWeights& weights) {
  ReadAhead reader(data.index, model, {});
  std::vector<int> all(data.index.samples.size());
  std::iota(all.begin(), all.end(), 0);
  return reference_step(model, weights, reference_batch(data, reader, all)).loss;
}

}  // namespace entrain::oracle
