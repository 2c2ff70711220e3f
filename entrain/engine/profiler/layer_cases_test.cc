#include "entrain/engine/profiler/layer_cases.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

ModelSpec small_model() {
  ModelSpec model;
  model.name = "small";
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.num_layers = 2;
  encoder.hidden = 16;
  encoder.num_heads = 2;
  encoder.intermediate = 24;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  model.encoders.push_back(encoder);
  model.llm.num_layers = 2;
  model.llm.hidden = 24;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 6;
  model.llm.intermediate = 32;
  model.llm.vocab_size = 40;
  return model;
}

TEST(NearSquareGrid, HoldsAboutTheTokensAskedFor) {
  for (const std::int64_t merge : {1, 2, 3}) {
    for (std::int64_t tokens = 1; tokens < 400; ++tokens) {
      const SegmentGrid grid = near_square_grid(tokens, merge);
      EXPECT_EQ(grid.rows % merge, 0);
      EXPECT_EQ(grid.columns % merge, 0);
      EXPECT_LE(grid.tokens(), std::max(tokens, merge * merge));
      EXPECT_GE(3 * grid.tokens(), std::min(tokens, 3 * merge * merge));
      EXPECT_LE(grid.rows, grid.columns);
    }
  }
}

std::vector<LayerCases> all_cases(std::int64_t max_tokens, int degree = 1) {
  const CaseGrid grid = {{std::max<std::int64_t>(1, max_tokens / 16),
                          std::max<std::int64_t>(1, max_tokens / 4),
                          max_tokens},
                         {1, 0}};
  std::vector<LayerCases> result;
  for (const LayerChoice& choice : layer_choices(small_model(), {degree})) {
    result.push_back(layer_cases(small_model(), choice, grid, {}));
  }
  return result;
}

TEST(LayerCases, CoverEveryLayerKindAtThreeSizes) {
  const std::vector<LayerCases> layers = all_cases(256);
  std::set<LayerKind> kinds;
  for (const LayerCases& layer : layers) {
    kinds.insert(layer.kind);
    std::set<double> sizes;
    for (const LayerCase& layer_case : layer.cases) {
      sizes.insert(layer_case.tokens);
    }
    EXPECT_GE(sizes.size(), 3U) << name_of(layer.kind);
    EXPECT_EQ(std::ssize(layer.layers), layer.num_alike);
    EXPECT_FALSE(layer.layers[0].empty());
  }
  EXPECT_EQ(kinds.size(), 6U);
  EXPECT_EQ(layers.size(), 6U);
}

TEST(LayerCases, RunForwardAndBackward) {
  for (const std::int64_t max_tokens : {1, 64, 200}) {
    for (const LayerCases& layer : all_cases(max_tokens)) {
      for (const LayerCase& layer_case : layer.cases) {
        at::Tensor input = layer_case.input;
        input.set_requires_grad(true);
        at::Tensor output;
        for (int copy = 0; copy < layer.num_alike; ++copy) {
          output = layer_case.forward(copy);
          output.sum().backward();
          EXPECT_TRUE(input.grad().defined()) << name_of(layer.kind);
          for (const NamedParameter& parameter : layer.layers[static_cast<std::size_t>(copy)]) {
            EXPECT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
            parameter.tensor.mutable_grad() = at::Tensor();
          }
        }
        if (layer.kind != LayerKind::kOutputHead) {
          EXPECT_DOUBLE_EQ(static_cast<double>(output.nbytes()),
                           layer.output_bytes_per_token * layer_case.tokens)
              << name_of(layer.kind);
        }
      }
    }
  }
}

// Weights of their own, as the layers of a stage have them, as far as memory allows.
TEST(LayerCases, LayersShareNoWeights) {
  ModelSpec model = small_model();
  model.llm.num_layers = 20;
  const CaseGrid grid = {{64}, {1}};
  const LayerCases many = layer_cases(model, {1, 1, 1}, grid, {});
  ASSERT_EQ(std::ssize(many.layers), kMostLayers);
  std::set<const void*> weights;
  std::int64_t bytes = 0;
  for (const std::vector<NamedParameter>& layer : many.layers) {
    for (const NamedParameter& parameter : layer) {
      weights.insert(parameter.tensor.const_data_ptr());
      bytes += static_cast<std::int64_t>(parameter.tensor.nbytes());
    }
  }
  EXPECT_EQ(weights.size(), kMostLayers * many.layers[0].size());
  // With their gradients, three eighths of them fit.
  EXPECT_EQ(std::ssize(layer_cases(model, {1, 1, 1}, grid, {}, 2 * bytes * 3 / 8).layers), 3);
  EXPECT_EQ(std::ssize(layer_cases(model, {1, 1, 1}, grid, {}, 1).layers), 1);
}

// Σn² and Σn can only be told apart when points of equal tokens differ in pairs.
TEST(LayerCases, SegmentationsDifferInPairsAlone) {
  for (const LayerCases& layer : all_cases(1024)) {
    if (layer.terms != CurveTerms::kAttention) {
      continue;
    }
    ASSERT_EQ(layer.cases.size(), 6U);
    for (std::size_t i = 0; i < 6; i += 2) {
      EXPECT_NEAR(layer.cases[i].tokens / layer.cases[i + 1].tokens, 1, 0.3);
      EXPECT_GT(layer.cases[i].attention_pairs, 1.5 * layer.cases[i + 1].attention_pairs);
    }
  }
}

TEST(LayerCases, CountPairsAsTheWorkloadDoes) {
  for (const LayerCases& layer : all_cases(1024)) {
    const LayerCase& one_segment = layer.cases.front();
    const double tokens = one_segment.tokens;
    if (layer.kind == LayerKind::kEncoderTransformer) {
      EXPECT_EQ(one_segment.attention_pairs, tokens * tokens);
    } else if (layer.kind == LayerKind::kDecoder) {
      EXPECT_EQ(one_segment.attention_pairs, tokens * tokens / 2);
    }
  }
}

TEST(LayerCases, CountPairsWithinWindowsWhereALayerHasThem) {
  ModelSpec model = small_model();
  model.encoders[0].window_size = 16;
  model.encoders[0].full_attention_layers = {0};
  const std::vector<LayerChoice> choices = layer_choices(model, {1});
  ASSERT_EQ(choices.size(), 7U) << "one kind more";
  const LayerCases full = layer_cases(model, choices[1], {{256}, {1}}, {});
  const LayerCases windowed = layer_cases(model, choices[2], {{256}, {1, 4}}, {});
  ASSERT_EQ(full.kind, LayerKind::kEncoderTransformer);
  ASSERT_EQ(windowed.kind, LayerKind::kWindowedTransformer);
  EXPECT_EQ(windowed.terms, CurveTerms::kAttention);
  // 16 x 16 patches are 16 windows of 16.
  EXPECT_EQ(full.cases[0].attention_pairs, 256 * 256);
  EXPECT_EQ(windowed.cases[0].attention_pairs, 16 * 16 * 16);
  EXPECT_EQ(windowed.cases[1].attention_pairs, 16 * 16 * 16) << "four segments of four windows";
  EXPECT_EQ(windowed.cases[0].forward(0).sizes(), full.cases[0].forward(0).sizes());
}

TEST(LayerCases, SegmentsKeepSixteenTokens) {
  const CaseGrid grid = {{64, 256}, {1, 4, 16}};
  const LayerCases decoder = layer_cases(small_model(), {1, 1, 1}, grid, {});
  std::vector<std::pair<double, std::int64_t>> sizes;
  for (const LayerCase& layer_case : decoder.cases) {
    sizes.emplace_back(layer_case.tokens, layer_case.num_segments);
  }
  const std::vector<std::pair<double, std::int64_t>> expected = {
      {64, 1}, {64, 4}, {256, 1}, {256, 4}, {256, 16}};
  EXPECT_EQ(sizes, expected);
}

TEST(LayerCases, NoSegmentIsLongerThanTheModelTakes) {
  ModelSpec model = small_model();
  model.encoders[0].max_pixels = 16 * 100;  // patches of 4 x 4
  model.llm.max_tokens = 200;
  const CaseGrid grid = {{64, 400, 1600}, {1, 4, 16}};
  const auto sizes_of = [&](int module) {
    std::vector<std::pair<double, std::int64_t>> sizes;
    for (const LayerCase& layer_case : layer_cases(model, {module, 1, 1}, grid, {}).cases) {
      const double length = layer_case.tokens / static_cast<double>(layer_case.num_segments);
      EXPECT_LE(length, module == 0 ? 100 : 200);
      sizes.emplace_back(std::round(layer_case.tokens / 100), layer_case.num_segments);
    }
    return sizes;
  };
  using Sizes = std::vector<std::pair<double, std::int64_t>>;
  EXPECT_EQ(sizes_of(0), (Sizes{{1, 1}, {1, 4}, {4, 4}, {4, 16}, {16, 16}, {15, 64}}));
  EXPECT_EQ(sizes_of(1), (Sizes{{1, 1}, {1, 4}, {4, 2}, {4, 8}, {16, 8}, {16, 32}}));
}

ModelSpec audio_model() {
  ModelSpec model = small_model();
  EncoderSpec& encoder = model.encoders[0];
  encoder.name = "audio";
  encoder.modality = Modality::kAudio;
  encoder.window_seconds = 1;  // 50 tokens
  return model;
}

TEST(LayerCases, MeasureAudioFromItsMelFrames) {
  const std::vector<LayerChoice> choices = layer_choices(audio_model(), {1});
  ASSERT_EQ(choices.size(), 6U);
  const std::vector<LayerKind> kinds = {
      LayerKind::kAudioEmbedding, LayerKind::kEncoderTransformer, LayerKind::kProjector};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const LayerCases layer = layer_cases(audio_model(), choices[i], {{1, 40, 200}, {1, 0}}, {});
    EXPECT_EQ(layer.kind, kinds[i]);
    EXPECT_EQ(layer.module, "audio");
    for (const LayerCase& layer_case : layer.cases) {
      at::Tensor input = layer_case.input;
      EXPECT_EQ(input.size(0), static_cast<std::int64_t>((i == 0 ? 2 : 1) * layer_case.tokens));
      EXPECT_EQ(input.size(1), i == 0 ? audio_model().encoders[0].mel_bands : 16);
      input.set_requires_grad(true);
      const at::Tensor output = layer_case.forward(0);
      output.sum().backward();
      EXPECT_TRUE(input.grad().defined());
      EXPECT_DOUBLE_EQ(static_cast<double>(output.nbytes()),
                       layer.output_bytes_per_token * layer_case.tokens);
      if (i == 1) {
        EXPECT_LE(layer_case.tokens / static_cast<double>(layer_case.num_segments), 50);
      }
    }
  }
}

TEST(LayerCases, StayWithinStoredPositions) {
  ModelSpec model = audio_model();
  model.encoders[0].stored_positions = true;
  const LayerCases layer =
      layer_cases(model, layer_choices(model, {1})[0], {{1, 40, 200}, {1, 0}}, {});
  for (const LayerCase& layer_case : layer.cases) {
    EXPECT_LE(layer_case.tokens / static_cast<double>(layer_case.num_segments), 50);
    EXPECT_EQ(layer_case.forward(0).size(0), static_cast<std::int64_t>(layer_case.tokens));
  }
}

TEST(LayerChoices, LeaveOutDegreesThatDoNotDivide) {
  // Two key heads: 2 divides everything, 4 nothing.
  EXPECT_EQ(layer_choices(small_model(), {1, 2, 4}).size(), 12U);
  EXPECT_TRUE(layer_choices(small_model(), {3}).empty());
}

// A slice does its share of the arithmetic: it runs, and holds half of every matrix.
TEST(LayerCases, SlicesRunAndHoldTheirShare) {
  const std::vector<LayerCases> whole = all_cases(64);
  const std::vector<LayerCases> half = all_cases(64, 2);
  ASSERT_EQ(half.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(half[i].tensor_parallel, 2);
    at::Tensor input = half[i].cases.back().input;
    input.set_requires_grad(true);
    half[i].cases.back().forward(0).sum().backward();
    EXPECT_TRUE(input.grad().defined()) << name_of(half[i].kind);
    for (std::size_t p = 0; p < whole[i].layers[0].size(); ++p) {
      const NamedParameter& full = whole[i].layers[0][p];
      if (full.tensor.dim() == 2 && whole[i].kind != LayerKind::kPatchEmbedding) {
        EXPECT_EQ(2 * half[i].layers[0][p].tensor.numel(), full.tensor.numel()) << full.name;
      }
    }
  }
}

}  // namespace
}  // namespace entrain::engine
