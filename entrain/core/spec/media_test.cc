#include "entrain/core/spec/media.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

ModelSpec model_with(std::initializer_list<Modality> modalities) {
  ModelSpec model;
  for (const Modality modality : modalities) {
    EncoderSpec& encoder = model.encoders.emplace_back();
    encoder.name = name_of(modality);
    encoder.modality = modality;
  }
  return model;
}

template <class Call>
void expect_refusal(const Call& call, std::initializer_list<const char*> parts) {
  const std::string message = oracle::error_of<InvalidInput>(call);
  for (const char* part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

std::vector<SampleSizes> mixed_samples() {
  std::vector<SampleSizes> samples(5);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].id = "s" + std::to_string(i);
  }
  samples[0].images = {{10, 10}};
  samples[1].audio_seconds = {1.5, 2};
  samples[2].audio_seconds = {1};
  samples[2].images = {{10, 10}};
  samples[3].videos = {{3.0, std::nullopt, std::nullopt}};
  return samples;
}

TEST(CheckMedia, TakesWhatTheModelHasEncodersFor) {
  const ModelSpec both = model_with({Modality::kAudio, Modality::kVision});
  EXPECT_TRUE(check_media(both, mixed_samples(), {}, "index 'a.csv'", kIgnoreOption).empty());
  EXPECT_TRUE(
      check_media(model_with({}), std::vector<SampleSizes>(3), {}, "index", kIgnoreOption).empty());
}

TEST(CheckMedia, RefusesWithCountIdsAndWayOut) {
  const ModelSpec vision = model_with({Modality::kVision});
  expect_refusal(
      [&] { check_media(vision, mixed_samples(), {}, "index 'a.csv'", kIgnoreOption); },
      {"index 'a.csv': 2 of 5 samples have audio clips ('s1', 's2')", "--ignore-modality audio"});
  const ModelSpec audio = model_with({Modality::kAudio});
  expect_refusal([&] { check_media(audio, mixed_samples(), {"audio"}, "x", kIgnoreKey); },
                 {"data.ignore_modality = [\"audio\"]", "the model has encoder 'audio'"});
  expect_refusal([&] { check_media(audio, mixed_samples(), {}, "x", kIgnoreKey); },
                 {"3 of 5 samples have images or videos", "data.ignore_modality = [\"image\"]"});
  expect_refusal([&] { check_media(audio, mixed_samples(), {"sound"}, "x", kIgnoreOption); },
                 {"--ignore-modality sound", "audio and image"});
}

TEST(CheckMedia, CountsWhatIsIgnored) {
  const ModelSpec none = model_with({});
  const std::vector<std::string> notes =
      check_media(none, mixed_samples(), {"image", "audio"}, "index 'a.csv'", kIgnoreOption);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0],
            "index 'a.csv': 3 audio clips of 2 of 5 samples are ignored (--ignore-modality audio)");
  EXPECT_EQ(notes[1],
            "index 'a.csv': 3 images or videos of 3 of 5 samples are ignored (--ignore-modality "
            "image)");
}

}  // namespace
}  // namespace entrain
