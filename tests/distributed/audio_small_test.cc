// Training steps on recordings, alone and beside images, under a pipeline, against plain training
// in one process; and the evaluation of such a model.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/weights.h"
#include "entrain/engine/train/evaluate.h"

#include "tests/oracle/engine/real_run.h"
#include "tests/oracle/engine/reference_model.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;
using oracle::expect_training;
using oracle::shards_of;

// Windows of 0.4 s: about half of the recordings have several.
constexpr const char* kAudio = R"(
[audio]
num_layers = 2
hidden = 32
num_heads = 2
intermediate = 64
window_seconds = 0.4
)";
constexpr const char* kVision = R"(
[vision]
num_layers = 1
hidden = 32
num_heads = 2
intermediate = 64
min_pixels = 784
max_pixels = 50176
)";
// Samples with images and clips, with either, and of text alone.
fs::path made_up_shard(const oracle::TemporaryFolder& folder) {
  Rng rng(11);
  oracle::TarWriter tar;
  for (int i = 0; i < 48; ++i) {
    const std::string name = concat("s", i);
    const int grey = static_cast<int>(rng.below(256));
    if (i % 4 == 0 || i % 4 == 1) {
      tar.add(name + ".png",
              oracle::flat_png(56,
                               static_cast<int>(28 * (1 + rng.below(3))),
                               static_cast<std::uint8_t>(grey),
                               9,
                               9));
    }
    for (int clip = 0; clip < (i % 4 == 0 ? 2 : i % 4 == 2 ? 1 : 0); ++clip) {
      std::vector<double> samples(1'000 + rng.below(9'000));
      for (double& sample : samples) {
        sample = std::clamp(0.1 * rng.normal(), -1.0, 0.99);
      }
      tar.add(concat(name, ".", clip, ".wav"), oracle::make_wav(samples, {.sample_rate = 11'025}));
    }
    tar.add(name + ".json", concat(R"({"prompt": "what )", grey, R"(", "response": "that"})"));
  }
  return folder.write("train-0.tar", tar.archive());
}

TEST(AudioSmall, TwentyStepsUnderAPipelineEqualPlainTraining) {
  const std::vector<fs::path> audio = shards_of("audio-small");
  if (audio.empty()) {
    GTEST_SKIP() << "the audio-small data set is not beside the repository";
  }
  expect_training(oracle::TemporaryFolder(), kAudio, audio, {{"audio", 2}, {"llm", 2}});
}

// Samples with images and samples with recordings in one step, an encoder lane for either.
TEST(AudioSmall, MixedWithImagesTheyEqualPlainTrainingToo) {
  std::vector<fs::path> data = shards_of("audio-small");
  const std::vector<fs::path> vision = shards_of("vlm-small");
  if (data.empty() || vision.empty()) {
    GTEST_SKIP() << "the audio-small and vlm-small data sets are not beside the repository";
  }
  data.push_back(vision.front());
  expect_training(oracle::TemporaryFolder(),
                  concat(kVision, kAudio),
                  data,
                  {{"vision", 1}, {"audio", 1}, {"llm", 2}});
}

TEST(VisionAndAudio, InOneSampleEqualPlainTrainingAndEvaluateAlike) {
  const oracle::TemporaryFolder folder;
  const fs::path shard = made_up_shard(folder);
  expect_training(
      folder, concat(kVision, kAudio), {shard}, {{"vision", 1}, {"audio", 1}, {"llm", 1}});
  const ModelSpec model = read_model(folder.path() / "model.toml");
  const DataSet data = load_data_set((folder.path() / "train.csv").string(), model);
  const oracle::NamedWeights weights = oracle::initial_weights(model, 5);
  std::vector<NamedParameter> named;
  for (const auto& [name, tensor] : weights) {
    named.push_back({name, tensor});
  }
  write_weights(folder.path() / "weights.safetensors", named);
  EvaluateOptions options;
  options.max_answer_tokens = 1;
  const EvaluateResult result =
      evaluate(model, folder.path() / "weights.safetensors", data, options);
  EXPECT_EQ(result.answers.size(), 48U);
  EXPECT_NEAR(result.loss, oracle::plain_loss(model, data, weights), 1e-5);
  options.blank = true;
  EXPECT_GT(std::abs(evaluate(model, folder.path() / "weights.safetensors", data, options).loss -
                     result.loss),
            1e-3);
}

}  // namespace
}  // namespace entrain::engine
