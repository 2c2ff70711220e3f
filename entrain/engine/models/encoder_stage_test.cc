// EncoderStage, which stages.h declares.
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/models/stages.h"

#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::gradients_of;

constexpr int kEncoderLlmHidden = 24;

EncoderSpec three_layer_encoder() {
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.num_layers = 3;
  encoder.hidden = 16;
  encoder.num_heads = 2;
  encoder.intermediate = 20;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  return encoder;
}

const std::vector<SegmentGrid> kGrids = {{2, 4}, {6, 2}, {2, 2}};  // 24 patches

TEST(EncoderStage, StagesInARowEqualOneStage) {
  const EncoderSpec encoder = three_layer_encoder();
  const at::Tensor patches = oracle::random_floats({24, 48}, "patches");
  const EncoderStage whole(encoder, kEncoderLlmHidden, {0, 5}, {});
  const at::Tensor expected = whole.forward(patches, kGrids);
  ASSERT_EQ(expected.sizes(), (std::vector<std::int64_t>{6, kEncoderLlmHidden}));
  expected.square().sum().backward();
  const auto expected_gradients = gradients_of(whole.parameters());
  for (const int cut : {1, 2, 4}) {
    const EncoderStage first(encoder, kEncoderLlmHidden, {0, cut}, {});
    const EncoderStage second(encoder, kEncoderLlmHidden, {cut, 5}, {});
    const at::Tensor middle = first.forward(patches, kGrids);
    ASSERT_EQ(middle.sizes(), (std::vector<std::int64_t>{24, 16}));
    const at::Tensor received = middle.detach().set_requires_grad(true);
    const at::Tensor result = second.forward(received, kGrids);
    EXPECT_TRUE(at::equal(result, expected)) << "cut before layer " << cut;
    result.square().sum().backward();
    middle.backward(received.grad());
    oracle::expect_gradients(first.parameters(), second.parameters(), expected_gradients);
  }
}

TEST(EncoderStage, SegmentsDoNotSeeEachOther) {
  const EncoderStage stage(three_layer_encoder(), kEncoderLlmHidden, {0, 5}, {});
  const at::Tensor patches = oracle::random_floats({24, 48}, "patches");
  at::Tensor changed = patches.clone();
  changed.narrow(0, 8, 12).add_(1.0);
  const at::Tensor before = stage.forward(patches, kGrids);
  const at::Tensor after = stage.forward(changed, kGrids);
  EXPECT_TRUE(at::equal(before.narrow(0, 0, 2), after.narrow(0, 0, 2)));
  EXPECT_TRUE(at::equal(before.narrow(0, 5, 1), after.narrow(0, 5, 1)));
  EXPECT_FALSE(at::allclose(before.narrow(0, 2, 3), after.narrow(0, 2, 3)));
}

TEST(EncoderStage, PositionsMatter) {
  // The same patches as 2×4 and as 4×2: equal sets of tokens, other coordinates.
  const EncoderStage stage(three_layer_encoder(), kEncoderLlmHidden, {0, 5}, {});
  const at::Tensor patches = oracle::random_floats({8, 48}, "patches");
  const std::vector<SegmentGrid> wide = {{2, 4}};
  const std::vector<SegmentGrid> tall = {{4, 2}};
  EXPECT_FALSE(at::allclose(stage.forward(patches, wide), stage.forward(patches, tall)));
}

TEST(EncoderStage, NamesAreThoseOfHuggingFace) {
  const EncoderStage stage(three_layer_encoder(), kEncoderLlmHidden, {2, 5}, {});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const NamedParameter& parameter : stage.parameters()) {
    shapes[parameter.name] = parameter.tensor.sizes().vec();
  }
  EXPECT_EQ(shapes.size(), 2U * 7 + 5);
  EXPECT_EQ(shapes.at("visual.blocks.1.attn.qkv.weight"), (std::vector<std::int64_t>{48, 16}));
  EXPECT_EQ(shapes.at("visual.blocks.2.mlp.down_proj.weight"), (std::vector<std::int64_t>{16, 20}));
  EXPECT_EQ(shapes.at("visual.merger.mlp.2.weight"),
            (std::vector<std::int64_t>{kEncoderLlmHidden, 64}));
  EncoderSpec other = three_layer_encoder();
  other.name = "thermal";
  EXPECT_EQ(EncoderStage(other, kEncoderLlmHidden, {0, 1}, {}).parameters().front().name,
            "thermal.patch_embed.proj.weight");
}

TEST(EncoderStage, FreezesTowerAndProjectorApart) {
  for (const bool tower : {false, true}) {
    for (const bool projector : {false, true}) {
      EncoderSpec encoder = three_layer_encoder();
      encoder.frozen = tower;
      encoder.projector_frozen = projector;
      const EncoderStage stage(encoder, kEncoderLlmHidden, {0, 5}, {});
      for (const NamedParameter& parameter : stage.parameters()) {
        const bool in_projector = parameter.name.starts_with("visual.merger.");
        EXPECT_EQ(parameter.tensor.requires_grad(), !(in_projector ? projector : tower))
            << parameter.name;
      }
      const at::Tensor features = stage.forward(oracle::random_floats({24, 48}, "patches"), kGrids);
      EXPECT_EQ(features.requires_grad(), !(tower && projector));
    }
  }
}

TEST(EncoderStage, NoticesRowsThatAreNotItsSegments) {
  const EncoderStage stage(three_layer_encoder(), kEncoderLlmHidden, {0, 5}, {});
  EXPECT_THROW((void)stage.forward(oracle::random_floats({23, 48}, "patches"), kGrids),
               InternalError);
}

TEST(EncoderStage, RefusesImpossibleLayers) {
  EXPECT_THROW(EncoderStage(three_layer_encoder(), kEncoderLlmHidden, {0, 6}, {}), InvalidInput);
  EXPECT_THROW(EncoderStage(three_layer_encoder(), kEncoderLlmHidden, {2, 2}, {}), InvalidInput);
}

}  // namespace
}  // namespace entrain::engine
