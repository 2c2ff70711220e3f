#include "tests/oracle/engine/gradient_batch.h"

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/stages.h"

namespace entrain::oracle {
namespace {

EncoderSpec tiny_encoder(const std::string& name) {
  EncoderSpec encoder;
  encoder.name = name;
  encoder.num_layers = 2;
  encoder.hidden = 16;
  encoder.num_heads = 2;
  encoder.intermediate = 24;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  encoder.min_pixels = 64;
  encoder.max_pixels = 1200;
  encoder.window_size = 16;  // four patches a side, in the second of two layers
  encoder.full_attention_layers = {0};
  return encoder;
}

ModelSpec tiny_model(int num_encoders) {
  ModelSpec model;
  model.name = "tiny";
  for (int e = 0; e < num_encoders; ++e) {
    model.encoders.push_back(tiny_encoder(e == 0 ? "vision" : "thermal"));
  }
  model.llm.num_layers = 3;
  model.llm.hidden = 24;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 6;
  model.llm.intermediate = 32;
  model.llm.vocab_size = kVocabSize;
  return model;
}

std::string random_text(Rng& rng, std::int64_t length) {
  std::string text;
  for (std::int64_t i = 0; i < length; ++i) {
    text.push_back(static_cast<char>('a' + static_cast<char>(rng.below(26))));
  }
  return text;
}

// Patches of one sample for all encoders, and the sample as the reference reads it.
ReferenceSample add_segments(Rng& rng, int sample, GradientBatch& batch) {
  const SampleWork& work = batch.work.back();
  const TokenizedSample& text = batch.texts.back();
  ReferenceSample plain;
  plain.ids = text.ids;
  plain.target_begin = text.target_begin;
  std::size_t image = 0;
  for (std::size_t module = 0; module < work.segments.size(); ++module) {
    const std::int64_t patch = batch.model.encoders[module].patch_size;
    std::vector<engine::SegmentData>& segments = batch.segments[module].emplace_back();
    for (const SegmentWork& segment : work.segments[module]) {
      const std::string name = concat("patches ", sample, " ", image, " ", rng.next());
      const at::Tensor patches = engine::initial_weight(
          name, {segment.tokens, 3 * patch * patch}, 1.0, {.seed = kWeightSeed});
      segments.push_back({patches, segment.rows, segment.columns});
      plain.images.push_back({static_cast<int>(module),
                              patches.to(at::kDouble),
                              segment.rows,
                              segment.columns,
                              text.feature_begin[image]});
      ++image;
    }
  }
  return plain;
}

// Gains and biases away from one and zero, so that a mistake in them shows.
void roughen(NamedWeights& weights) {
  for (auto& [name, tensor] : weights) {
    if (tensor.dim() == 1) {
      tensor.add_(engine::initial_weight(
          name + " noise", tensor.sizes().vec(), 0.3, {.seed = kWeightSeed}));
    }
  }
}

}  // namespace

GradientBatch make_gradient_batch(int num_encoders, int num_samples, std::uint64_t seed) {
  Rng rng(seed);
  GradientBatch batch;
  batch.model = tiny_model(num_encoders);
  batch.segments.resize(batch.model.encoders.size());
  std::vector<ReferenceSample> plain;
  for (int i = 0; i < num_samples; ++i) {
    SampleSizes sizes;
    sizes.id = concat("sample-", i);
    // Every fourth is text alone, every fourth has several images.
    const std::uint64_t images = i % 4 == 0 ? 0 : i % 4 == 1 ? 2 + rng.below(4) : 1;
    for (std::uint64_t image = 0; image < images; ++image) {
      sizes.images.push_back(
          {static_cast<int>(8 * (1 + rng.below(5))), static_cast<int>(8 * (1 + rng.below(3)))});
    }
    const SampleText text = {random_text(rng, static_cast<std::int64_t>(rng.below(12))),
                             random_text(rng, 1 + static_cast<std::int64_t>(rng.below(9)))};
    sizes.prompt_tokens = prompt_tokens(text, static_cast<int>(images) * num_encoders);
    sizes.response_tokens = response_tokens(text);
    batch.ids.push_back(sizes.id);
    batch.work.push_back(sample_work(batch.model, sizes));
    std::vector<std::int64_t> features;
    for (const auto& segments : batch.work.back().segments) {
      for (const SegmentWork& segment : segments) {
        features.push_back(segment.llm_tokens);
      }
    }
    batch.texts.push_back(tokenize(text, features));
    batch.target_tokens += batch.work.back().target_tokens;
    plain.push_back(add_segments(rng, i, batch));
  }
  batch.weights = initial_weights(batch.model, kWeightSeed);
  roughen(batch.weights);
  NamedWeights exact;
  for (const auto& [name, tensor] : batch.weights) {
    exact[name] = tensor.to(at::kDouble);
  }
  batch.reference = reference_step(batch.model, exact, plain);
  return batch;
}

engine::SegmentData GradientData::segment(int module, int sample, int segment) {
  EXPECT_TRUE(asked_.insert({module, sample, segment}).second)
      << "sample " << sample << " segment " << segment << " asked for twice";
  return batch_.segments.at(static_cast<std::size_t>(module))
      .at(static_cast<std::size_t>(sample))
      .at(static_cast<std::size_t>(segment));
}

const TokenizedSample& GradientData::text(int sample) {
  return batch_.texts.at(static_cast<std::size_t>(sample));
}

}  // namespace entrain::oracle
