// The audio encoder's own layers, and the stages they make, against torch's convolutions on one
// padded window at a time.
#include "entrain/engine/models/audio_layers.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/models/weight_gradients.h"

#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::gradients_of;

constexpr int kHidden = 8;
constexpr int kBands = 80;
constexpr int kAudioLlmHidden = 24;

EncoderSpec audio_encoder() {
  EncoderSpec encoder;
  encoder.name = "audio";
  encoder.modality = Modality::kAudio;
  encoder.num_layers = 2;
  encoder.hidden = kHidden;
  encoder.num_heads = 2;
  encoder.intermediate = 12;
  return encoder;
}

SegmentGrid window_of(std::int64_t frames) {
  const std::int64_t tokens = (frames + 1) / 2;
  return {tokens, 1, frames, tokens / 2};
}

// Even and odd numbers of frames and of tokens; the shortest window makes no feature.
const std::vector<SegmentGrid> kWindows = {
    window_of(9), window_of(12), window_of(1), window_of(7), window_of(2), window_of(8)};
constexpr std::int64_t kFrames = 9 + 12 + 1 + 7 + 2 + 8;
constexpr std::int64_t kTokens = 5 + 6 + 1 + 4 + 1 + 4;
constexpr std::int64_t kFeatures = 2 + 3 + 0 + 2 + 0 + 2;

AudioEmbedding random_embedding() {
  return {
      oracle::random_tensor({kHidden, kBands, kMelKernel}, "w1").div_(15).set_requires_grad(true),
      oracle::random_tensor({kHidden}, "b1").set_requires_grad(true),
      oracle::random_tensor({kHidden, kHidden, kMelKernel}, "w2").div_(5).set_requires_grad(true),
      oracle::random_tensor({kHidden}, "b2").set_requires_grad(true)};
}

std::vector<at::Tensor> gradients_and_clear(const AudioEmbedding& weights) {
  std::vector<at::Tensor> result;
  for (at::Tensor weight : {weights.weight1, weights.bias1, weights.weight2, weights.bias2}) {
    result.push_back(weight.grad());
    weight.mutable_grad() = at::Tensor();
  }
  return result;
}

TEST(AudioEmbedding, EqualsConvolutionsOfEachWindowPaddedByItself) {
  const AudioEmbedding weights = random_embedding();
  at::Tensor mel = oracle::random_tensor({kFrames, kBands}, "mel").set_requires_grad(true);
  const at::Tensor result = audio_embedding(weights, mel, kWindows);
  ASSERT_EQ(result.sizes(), (std::vector<std::int64_t>{kTokens, kHidden}));
  result.square().sum().backward();
  const std::vector<at::Tensor> gradients = gradients_and_clear(weights);
  const at::Tensor mel_gradient = mel.grad().clone();
  mel.mutable_grad() = at::Tensor();
  std::vector<at::Tensor> expected;
  std::int64_t begin = 0;
  for (const SegmentGrid& window : kWindows) {
    const at::Tensor frames = mel.narrow(0, begin, window.frames).t().unsqueeze(0);
    begin += window.frames;
    const at::Tensor first = at::gelu(at::conv1d(frames, weights.weight1, weights.bias1, 1, 1));
    const at::Tensor second = at::gelu(at::conv1d(first, weights.weight2, weights.bias2, 2, 1));
    expected.push_back(second.squeeze(0).t() + sinusoids(std::span(&window, 1),
                                                         kHidden,
                                                         mel.options().requires_grad(false)));
  }
  const at::Tensor all = at::cat(expected);
  EXPECT_TRUE(at::allclose(result, all, 1e-12, 1e-12));
  all.square().sum().backward();
  const std::vector<at::Tensor> expected_gradients = gradients_and_clear(weights);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_TRUE(at::allclose(gradients[i], expected_gradients[i], 1e-10, 1e-10)) << i;
  }
  EXPECT_TRUE(at::allclose(mel_gradient, mel.grad(), 1e-10, 1e-10));
}

// One frame after those of an even number is what a padded window has there.
TEST(AudioEmbedding, OfMaskedPaddingIsThatOfAPaddedWindow) {
  AudioEmbedding weights = random_embedding();
  weights.positions = oracle::random_tensor({10, kHidden}, "positions");
  const at::Tensor padded = oracle::random_tensor({2 * 20, kBands}, "padded");
  const std::vector<SegmentGrid> masked = {{3, 1, 7, 1}, {10, 1, 20, 5}, {1, 1, 3, 0}};
  const at::Tensor mel =
      at::cat({padded.narrow(0, 0, 7), padded.narrow(0, 20, 20), padded.narrow(0, 20, 3)});
  const std::vector<SegmentGrid> whole = {window_of(20), window_of(20)};
  const at::Tensor expected = audio_embedding(weights, padded, whole);
  const at::Tensor found = audio_embedding(weights, mel, masked);
  EXPECT_TRUE(at::allclose(
      found,
      at::cat({expected.narrow(0, 0, 3), expected.narrow(0, 10, 10), expected.narrow(0, 10, 1)}),
      1e-12,
      1e-12));
  const std::vector<SegmentGrid> too_many = {{3, 1, 8, 1}};
  EXPECT_THROW(audio_embedding(weights, padded.narrow(0, 0, 8), too_many), InternalError);
}

TEST(AudioEmbedding, BothConvolutionsWaitForTheWeightHalf) {
  const AudioEmbedding weights = random_embedding();
  const at::Tensor mel = oracle::random_tensor({kFrames, kBands}, "mel");
  audio_embedding(weights, mel, kWindows).square().sum().backward();
  const std::vector<at::Tensor> whole = gradients_and_clear(weights);
  const auto waiting = c10::make_intrusive<WeightGradients>();
  at::Tensor loss;
  {
    const WeightGradientsScope scope(waiting);
    loss = audio_embedding(weights, mel, kWindows).square().sum();
  }
  waiting->defer();
  loss.backward();
  for (const at::Tensor& gradient : gradients_and_clear(weights)) {
    EXPECT_FALSE(gradient.defined());
  }
  waiting->run();
  const std::vector<at::Tensor> halves = gradients_and_clear(weights);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(at::equal(whole[i], halves[i])) << i;
  }
}

TEST(Sinusoids, AreWhispersFromZeroInEveryWindow) {
  const at::Tensor positions = sinusoids(kWindows, kHidden, at::TensorOptions(at::kDouble));
  std::int64_t row = 0;
  for (const SegmentGrid& window : kWindows) {
    for (std::int64_t t = 0; t < window.tokens(); ++t, ++row) {
      for (int i = 0; i < 4; ++i) {
        const double angle = static_cast<double>(t) * std::pow(1e4, -i / 3.0);
        EXPECT_NEAR(positions[row][i].item<double>(), std::sin(angle), 1e-12);
        EXPECT_NEAR(positions[row][4 + i].item<double>(), std::cos(angle), 1e-12);
      }
    }
  }
  EXPECT_EQ(row, kTokens);
}

at::Tensor random_mel() {
  return oracle::random_tensor({kFrames, kBands}, "mel", at::kFloat);
}

TEST(AudioStage, StagesInARowEqualOneStageRecomputedOrNot) {
  const EncoderSpec encoder = audio_encoder();
  const EncoderStage whole(encoder, kAudioLlmHidden, {0, 4}, {});
  const at::Tensor expected = whole.forward(random_mel(), kWindows);
  ASSERT_EQ(expected.sizes(), (std::vector<std::int64_t>{kFeatures, kAudioLlmHidden}));
  expected.square().sum().backward();
  const auto expected_gradients = gradients_of(whole.parameters());
  for (const int cut : {1, 2, 3}) {
    const EncoderStage first(encoder, kAudioLlmHidden, {0, cut}, {}, cut / 2);
    const EncoderStage second(encoder, kAudioLlmHidden, {cut, 4}, {}, 4 - cut);
    const at::Tensor middle = first.forward(random_mel(), kWindows);
    ASSERT_EQ(middle.sizes(), (std::vector<std::int64_t>{kTokens, kHidden}));
    // Later stages do not know of mel frames.
    std::vector<SegmentGrid> windows = kWindows;
    for (SegmentGrid& window : windows) {
      window.frames = 0;
    }
    const at::Tensor received = middle.detach().set_requires_grad(true);
    const at::Tensor result = second.forward(received, windows);
    EXPECT_TRUE(at::equal(result, expected)) << "cut before layer " << cut;
    result.square().sum().backward();
    middle.backward(received.grad());
    oracle::expect_gradients(first.parameters(), second.parameters(), expected_gradients);
  }
}

TEST(AudioStage, WindowsDoNotSeeEachOther) {
  const EncoderStage stage(audio_encoder(), kAudioLlmHidden, {0, 4}, {});
  const at::Tensor mel = random_mel();
  at::Tensor changed = mel.clone();
  changed.narrow(0, 9, 12).add_(1.0);
  const at::Tensor before = stage.forward(mel, kWindows);
  const at::Tensor after = stage.forward(changed, kWindows);
  EXPECT_TRUE(at::equal(before.narrow(0, 0, 2), after.narrow(0, 0, 2)));
  EXPECT_TRUE(at::equal(before.narrow(0, 5, 4), after.narrow(0, 5, 4)));
  EXPECT_FALSE(at::allclose(before.narrow(0, 2, 3), after.narrow(0, 2, 3)));
}

// A window filled up with silence: all its tokens attend, those of the sound become features.
TEST(AudioStage, PaddedWindowsGiveFeaturesOfTheirSound) {
  const EncoderStage stage(audio_encoder(), kAudioLlmHidden, {0, 4}, {});
  const at::Tensor mel = random_mel().narrow(0, 0, 20);
  const std::vector<SegmentGrid> whole = {{10, 1, 20, 5}};
  const std::vector<SegmentGrid> part = {{10, 1, 20, 3}};
  EXPECT_TRUE(at::allclose(stage.forward(mel, part), stage.forward(mel, whole).narrow(0, 0, 3)));
}

TEST(AudioStage, HasTheNamesAndShapesOfHuggingFaceAndOfTheSpec) {
  ModelSpec model;
  model.encoders = {audio_encoder()};
  model.llm.hidden = kAudioLlmHidden;
  const EncoderStage stage(model.encoders[0], kAudioLlmHidden, {0, 4}, {});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::int64_t values = 0;
  for (const NamedParameter& parameter : stage.parameters()) {
    shapes[parameter.name] = parameter.tensor.sizes().vec();
    values += parameter.tensor.numel();
  }
  EXPECT_EQ(shapes.at("audio_tower.conv1.weight"),
            (std::vector<std::int64_t>{kHidden, kBands, kMelKernel}));
  EXPECT_EQ(shapes.at("audio_tower.conv2.bias"), (std::vector<std::int64_t>{kHidden}));
  EXPECT_EQ(shapes.at("audio_tower.merger.mlp.0.weight"), (std::vector<std::int64_t>{16, 16}));
  std::int64_t planned = 0;
  for (int layer = 0; layer < 4; ++layer) {
    planned += layer_parameters(model, 0, layer);
  }
  EXPECT_EQ(values, planned);
}

TEST(AudioStage, HoldsStoredPositionsThatAreNeverTrained) {
  EncoderSpec encoder = audio_encoder();
  encoder.stored_positions = true;
  encoder.window_seconds = 0.13;
  const EncoderStage stage(encoder, kAudioLlmHidden, {0, 1}, {});
  const NamedParameter& table = stage.parameters().back();
  EXPECT_EQ(table.name, "audio_tower.positions.weight");
  EXPECT_TRUE(at::equal(table.tensor, sinusoid_table(7, kHidden).to(at::kFloat)));
  EXPECT_FALSE(table.tensor.requires_grad());
  EXPECT_TRUE(stage.parameters().front().tensor.requires_grad());
}

TEST(AudioStage, NoticesFramesThatAreNotItsWindows) {
  const EncoderStage stage(audio_encoder(), kAudioLlmHidden, {0, 4}, {});
  EXPECT_THROW((void)stage.forward(random_mel().narrow(0, 0, kFrames - 1), kWindows),
               InternalError);
  std::vector<SegmentGrid> wrong = kWindows;
  wrong[0].rows = 3;
  EXPECT_THROW((void)stage.forward(random_mel(), wrong), InternalError);
}

}  // namespace
}  // namespace entrain::engine
