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
      point.forward = {0.8 * forward, forward, 1.2 * forward, 0.9 * forward, 1.1 * forward};
      point.backward_input = {2 * forward, 2 * forward, 2 * forward};
      const double backward = 2 * forward + 700 * tokens;
      point.backward = {0.9 * backward, 0.9 * backward, 1.2 * backward};
      const double halves = backward + 30 * tokens + 200;
      point.backward_halves = {0.5 * halves, 1.25 * halves, 1.25 * halves};
      point.recompute = {forward, forward};
      layer.points.push_back(point);
    }
  }
  return layer;
}

TEST(FitLayer, FitsMeansAndSaysWhatTheyRestOn) {
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
  EXPECT_NEAR(profile.spread, 0.2, 1e-9);
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
  // Two inputs gathered once more: 3 hops each, 3/4 of the bytes.
  EXPECT_NEAR(four.backward_weight.per_launch_ns - alone.backward_weight.per_launch_ns, 6000, 1);
  EXPECT_NEAR(four.backward_weight.per_token_ns - alone.backward_weight.per_token_ns, 288, 1e-3);
}

TEST(RankExchanges, CountWhatEachLayerKindBringsTogether) {
  const ModelSpec model = model_of_one_encoder();
  const RankExchanges projector = rank_exchanges(model, "vision", LayerKind::kProjector, 4);
  EXPECT_EQ(projector.forward.count, 3);
  EXPECT_EQ(projector.forward.bytes, 4 * 32 + 2 * 48) << "four patches make one token of the LLM";
  EXPECT_EQ(projector.backward_input.bytes, 4 * 32);
  EXPECT_EQ(projector.backward_weight.bytes, 4 * 32);
  EXPECT_EQ(rank_exchanges(model, "vision", LayerKind::kPatchEmbedding, 4).forward.count, 0);
  const RankExchanges embedding = rank_exchanges(model, "llm", LayerKind::kTokenEmbedding, 2);
  EXPECT_EQ(embedding.forward.bytes, 2 * 96);
  EXPECT_EQ(embedding.backward_input.count, 0);
  const RankExchanges head = rank_exchanges(model, "llm", LayerKind::kOutputHead, 2);
  EXPECT_EQ(head.forward.bytes, 96 + 20);
  EXPECT_EQ(head.backward_input.bytes, 2 * 96);
  EXPECT_EQ(head.backward_weight.bytes, 96);
}

}  // namespace
}  // namespace entrain::engine
