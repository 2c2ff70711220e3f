#include "entrain/engine/profiler/fit_layer.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

ModelSpec model_of_one_encoder() {
  ModelSpec model;
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.hidden = 32;
  encoder.merge_size = 2;
  model.encoders = {encoder};
  model.llm.hidden = 48;
  return model;
}

// Three sizes in two segmentations of a layer whose times are known.
MeasuredLayer decoder(int tensor_parallel) {
  MeasuredLayer layer;
  layer.module = "llm";
  layer.kind = LayerKind::kDecoder;
  layer.tensor_parallel = tensor_parallel;
  layer.activation_bytes_per_token = 100;
  layer.parameters = 10;
  layer.parameter_bytes = 40;
  for (const double tokens : {64.0, 256.0, 1024.0}) {
    for (const double segments : {1.0, 4.0}) {
      MeasuredPoint point;
      point.tokens = tokens;
      point.attention_pairs = tokens * tokens / 2 / segments;
      const double forward = 0.5 * point.attention_pairs + 1000 * tokens + 5000;
      point.forward = {0.99 * forward, forward, 1.01 * forward, 9 * forward, forward};
      point.backward_input = {2 * forward, 2 * forward, 2 * forward};
      point.backward = {2 * forward + 700 * tokens, 2 * forward + 700 * tokens, 1e12};
      const double split = 30 * tokens + 200;
      point.backward_halves = {point.backward[0] + split, point.backward[1] + split, 1};
      point.recompute = {forward, forward};
      layer.points.push_back(point);
    }
  }
  return layer;
}

TEST(FitLayer, FitsMediansAndSaysWhatTheyRestOn) {
  const LayerProfile profile = fit_layer(model_of_one_encoder(), decoder(1), "float32", {});
  EXPECT_NEAR(profile.forward.per_pair_ns, 0.5, 1e-6);
  EXPECT_NEAR(profile.forward.per_token_ns, 1000, 1e-3);
  EXPECT_NEAR(profile.forward.per_launch_ns, 5000, 1e-1);
  EXPECT_NEAR(profile.backward_input.per_token_ns, 2000, 1e-3);
  EXPECT_NEAR(profile.backward_weight.per_token_ns, 700, 1e-3);
  EXPECT_NEAR(profile.split.per_token_ns, 30, 1e-3);
  EXPECT_NEAR(profile.split.per_launch_ns, 200, 1e-1);
  EXPECT_NEAR(profile.recompute.per_token_ns, 1000, 1e-3);
  EXPECT_EQ(profile.range.least_tokens, 64);
  EXPECT_EQ(profile.range.most_tokens, 1024);
  EXPECT_EQ(profile.range.most_pairs, 1024 * 512);
  EXPECT_NEAR(profile.spread, 0.01, 1e-9);
  EXPECT_EQ(profile.optimizer_bytes, 80);
  EXPECT_EQ(fit_layer(model_of_one_encoder(), decoder(1), "bfloat16", {}).optimizer_bytes, 120);
}

TEST(FitLayer, AddsWhatRanksSayToEachOther) {
  LinkSpec link;
  link.latency = std::chrono::nanoseconds(1000);
  link.bytes_per_second = 1e9;
  const LayerProfile alone = fit_layer(model_of_one_encoder(), decoder(1), "float32", link);
  const LayerProfile four = fit_layer(model_of_one_encoder(), decoder(4), "float32", link);
  // Two all-reduces of 48 numbers a token: 6 hops of latency each, 6/4 of the bytes at 1 byte/ns.
  EXPECT_NEAR(four.forward.per_launch_ns - alone.forward.per_launch_ns, 12000, 1);
  EXPECT_NEAR(four.forward.per_token_ns - alone.forward.per_token_ns, 1.5 * 2 * 48 * 4, 1e-3);
  EXPECT_NEAR(four.backward_input.per_token_ns - alone.backward_input.per_token_ns, 576, 1e-3);
  EXPECT_EQ(four.backward_weight.per_token_ns, alone.backward_weight.per_token_ns);
}

TEST(PartialSums, CountWhatEachLayerKindAddsUp) {
  const ModelSpec model = model_of_one_encoder();
  const PartialSums projector = partial_sums(model, "vision", LayerKind::kProjector, 4);
  EXPECT_EQ(projector.forward, 1);
  EXPECT_EQ(projector.forward_bytes, 48) << "four patches make one token of the LLM's width";
  EXPECT_EQ(projector.backward_bytes, 4 * 32);
  EXPECT_EQ(partial_sums(model, "vision", LayerKind::kPatchEmbedding, 4).forward, 0);
  EXPECT_EQ(partial_sums(model, "llm", LayerKind::kTokenEmbedding, 2).forward_bytes, 96);
  EXPECT_EQ(partial_sums(model, "llm", LayerKind::kTokenEmbedding, 2).backward, 0);
}

}  // namespace
}  // namespace entrain::engine
