#include "entrain/core/cost/layer_work.h"

#include <gtest/gtest.h>

#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

TEST(LayerWork, CountsTwoFlopsAMultiplyAdd) {
  const ModelSpec model = oracle::small_model();
  // 12 pixels a patch → 8.
  EXPECT_EQ(layer_work(model, 0, 0, 4).matrix_flops, 2 * 12 * 8);
  // Query, key, value, output of 8 × 8; gate, up and down of 8 × 20.
  EXPECT_EQ(layer_work(model, 0, 1, 4).matrix_flops, 2 * (4 * 64 + 3 * 160));
  EXPECT_EQ(layer_work(model, 0, 1, 4).attention_flops, 4 * 8);
  // Four patches merge to 32 numbers, 32 × 32 and 32 × 16.
  EXPECT_EQ(layer_work(model, 0, 3, 4).matrix_flops, 2 * (32 * 32 + 32 * 16) / 4);
  // Two frames to merge: 16 × 16 and 16 × 16.
  EXPECT_EQ(layer_work(model, 1, 3, 4).matrix_flops, 2 * (16 * 16 + 16 * 16) / 2);
  // A token is two frames of 80 bands behind a kernel of 3, then a kernel of 3 over 8.
  EXPECT_EQ(layer_work(model, 1, 0, 4).matrix_flops, 2 * (2 * 80 * 3 * 8 + 3 * 8 * 8));
  EXPECT_EQ(layer_work(model, 2, 0, 4).matrix_flops, 0);
  // Query and output of 16 × 24, key and value of 16 × 12, MLP of 16 × 32.
  EXPECT_EQ(layer_work(model, 2, 1, 4).matrix_flops, 2 * (2 * 16 * 24 + 2 * 16 * 12 + 3 * 16 * 32));
  EXPECT_EQ(layer_work(model, 2, 1, 4).attention_flops, 4 * 24);
  EXPECT_EQ(layer_work(model, 2, 4, 4).matrix_flops, 2 * 16 * 100);
}

TEST(LayerWork, MatrixFlopsFollowFromParameters) {
  // A matrix of P numbers costs 2 · P FLOPs a token; norms (and biases) are no matrices.
  const ModelSpec model = oracle::small_model();
  EXPECT_EQ(layer_work(model, 0, 1, 4).matrix_flops,
            2.0 * static_cast<double>(layer_parameters(model, 0, 1) - 2 * 8));
  EXPECT_EQ(layer_work(model, 2, 2, 4).matrix_flops,
            2.0 * static_cast<double>(layer_parameters(model, 2, 2) - 2 * 16));
  EXPECT_EQ(layer_work(model, 2, 4, 4).matrix_flops,
            2.0 * static_cast<double>(layer_parameters(model, 2, 4) - 16));
}

// Queries and outputs are a token's; keys and values of features are pairs (workload.h), and the
// encoder keeps them.
TEST(LayerWork, CountsCrossAttention) {
  ModelSpec model = oracle::small_model();
  const LayerWork alone = layer_work(model, 2, 1, 4);
  const LayerWork last = layer_work(model, 1, 3, 4);
  model.llm.cross_attention = true;
  model.encoders[1].projector.num_matrices = 0;
  EXPECT_EQ(layer_work(model, 2, 1, 4).matrix_flops - alone.matrix_flops, 2 * 2 * 16 * 24);
  EXPECT_EQ(layer_work(model, 2, 1, 4).attention_flops, alone.attention_flops);
  EXPECT_EQ(layer_work(model, 1, 3, 4).matrix_flops, 0);
  EXPECT_GT(layer_work(model, 1, 3, 4).activation_bytes, model.llm.num_layers * 2 * 12 * 4);
  EXPECT_EQ(layer_work(model, 1, 3, 4).output_bytes, 2 * last.output_bytes);
}

// Three projections instead of one, and wide rows before and behind them.
TEST(LayerWork, CountsEveryLevelOfDeepStack) {
  ModelSpec model = oracle::small_model();
  const LayerWork one = layer_work(model, 0, 3, 4);
  model.encoders[0].deepstack_layers = {0, 1};
  model.llm.deepstack = 2;
  const LayerWork work = layer_work(model, 0, 3, 4);
  EXPECT_EQ(work.matrix_flops, 3 * one.matrix_flops);
  EXPECT_EQ(work.input_bytes, 3 * one.input_bytes);
  EXPECT_EQ(work.output_bytes, 3 * one.output_bytes);
  // A gain of 32, 32 × 32 and 32 × 16 with biases.
  EXPECT_EQ(layer_parameters(model, 0, 3) - layer_parameters(oracle::small_model(), 0, 3),
            2 * (32 + 32 * 32 + 32 + 32 * 16 + 16));
}

// Of five tokens four are patches, which alone are embedded and projected.
TEST(LayerWork, LeavesClassTokensOutOfBothEnds) {
  ModelSpec model = oracle::small_model();
  model.encoders[0].table_side = 2;
  const ModelSpec without = model;
  model.encoders[0].class_token = true;
  for (const int layer : {0, 3}) {
    EXPECT_DOUBLE_EQ(layer_work(model, 0, layer, 4).matrix_flops * 5,
                     layer_work(without, 0, layer, 4).matrix_flops * 4);
  }
  EXPECT_EQ(layer_work(model, 0, 1, 4).matrix_flops, layer_work(without, 0, 1, 4).matrix_flops);
}

TEST(LayerWork, CountsBytesKeptAndSent) {
  const ModelSpec model = oracle::small_model();
  EXPECT_EQ(layer_work(model, 2, 1, 4).activation_bytes, 4 * (4 * 16 + 2 * 24 + 2 * 12 + 3 * 32));
  EXPECT_EQ(layer_work(model, 2, 1, 2).activation_bytes, 2 * (4 * 16 + 2 * 24 + 2 * 12 + 3 * 32));
  EXPECT_EQ(layer_work(model, 0, 0, 4).input_bytes, 4 * 12);
  EXPECT_EQ(layer_work(model, 0, 1, 4).input_bytes, 4 * 8);
  EXPECT_EQ(layer_work(model, 1, 0, 4).input_bytes, 4 * 2 * 80);
  EXPECT_EQ(layer_work(model, 2, 0, 4).input_bytes, 8);
  EXPECT_EQ(layer_work(model, 2, 4, 2).input_bytes, 2 * 16);
  EXPECT_EQ(layer_work(model, 0, 1, 4).output_bytes, 4 * 8);
  EXPECT_EQ(layer_work(model, 0, 3, 4).output_bytes, 4 * 16 / 4);
  EXPECT_EQ(layer_work(model, 2, 4, 4).output_bytes, 0);
}

TEST(LayerWork, FollowsMelBandsAndAveragedTokens) {
  ModelSpec model = oracle::small_model();
  EncoderSpec& audio = model.encoders[1];
  audio.mel_bands = 128;
  EXPECT_EQ(layer_work(model, 1, 0, 4).input_bytes, 4 * 2 * 128);
  audio.projector.norm_tokens = false;
  audio.projector.norm_merged = audio.projector.average = true;
  audio.projector.num_matrices = 1;
  const int last = num_layers(model, 1) - 1;
  const double hidden = audio.hidden;
  // Half a row of the norm and of the matrix for every token.
  EXPECT_EQ(layer_work(model, 1, last, 4).matrix_flops, 2 * hidden * model.llm.hidden / 2);
  EXPECT_EQ(layer_work(model, 1, last, 4).activation_bytes, 4 * hidden);
}

}  // namespace
}  // namespace entrain
