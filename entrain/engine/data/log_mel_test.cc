#include "entrain/engine/data/log_mel.h"

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/spec/workload.h"

namespace entrain::engine {
namespace {

std::vector<float> noise(std::size_t length, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> samples;
  for (std::size_t i = 0; i < length; ++i) {
    samples.push_back(
        static_cast<float>(0.1 * rng.normal() * std::sin(1e-3 * static_cast<double>(i))));
  }
  return samples;
}

// Height of a band's triangle at a frequency, from the scale's two formulas.
double band_weight(int band, int bands, double hertz) {
  const auto hertz_of = [](double mel) {
    return mel < 15 ? mel * 200 / 3 : 1000 * std::pow(6.4, (mel - 15) / 27);
  };
  const double highest = 15 + 27 * std::log(8.0) / std::log(6.4);
  const double left = hertz_of(highest * band / (bands + 1));
  const double middle = hertz_of(highest * (band + 1) / (bands + 1));
  const double right = hertz_of(highest * (band + 2) / (bands + 1));
  if (hertz <= left || hertz >= right) {
    return 0;
  }
  const double height =
      hertz < middle ? (hertz - left) / (middle - left) : (right - hertz) / (right - middle);
  return height * 2 / (right - left);
}

// The whole window filled up with silence, as Whisper's own processor does, by plain sums.
std::vector<std::vector<double>> plain_log_mel(const std::vector<float>& samples,
                                               std::int64_t frames,
                                               int bands = 80) {
  std::vector<double> window(samples.begin(), samples.end());
  window.resize(static_cast<std::size_t>(160 * frames));
  const auto sample = [&](std::int64_t position) {
    const auto size = static_cast<std::int64_t>(window.size());
    const std::int64_t mirrored = position < 0       ? -position
                                  : position >= size ? 2 * size - 2 - position
                                                     : position;
    return window[static_cast<std::size_t>(mirrored)];
  };
  std::vector<std::vector<double>> result;
  double highest = -1e9;
  for (std::int64_t t = 0; t < frames; ++t) {
    std::vector<double> power;
    for (int k = 0; k <= 200; ++k) {
      std::complex<double> sum = 0;
      for (int n = 0; n < 400; ++n) {
        const double hann = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * n / 400);
        sum += hann * sample(160 * t - 200 + n) *
               std::polar(1.0, -2 * std::numbers::pi * (k * n % 400) / 400);
      }
      power.push_back(std::norm(sum));
    }
    std::vector<double>& row = result.emplace_back();
    for (int band = 0; band < bands; ++band) {
      double energy = 0;
      for (int k = 0; k <= 200; ++k) {
        energy += band_weight(band, bands, 40.0 * k) * power[static_cast<std::size_t>(k)];
      }
      row.push_back(std::log10(std::max(energy, 1e-10)));
      highest = std::max(highest, row.back());
    }
  }
  for (std::vector<double>& row : result) {
    for (double& value : row) {
      value = (std::max(value, highest - 8) + 4) / 4;
    }
  }
  return result;
}

void expect_equal(const at::Tensor& given,
                  const std::vector<std::vector<double>>& expected,
                  std::int64_t frames) {
  const auto bands = std::ssize(expected.front());
  ASSERT_EQ(given.sizes(), (std::vector<std::int64_t>{frames, bands}));
  ASSERT_EQ(given.scalar_type(), at::kFloat);
  for (std::int64_t t = 0; t < frames; ++t) {
    for (std::int64_t band = 0; band < bands; ++band) {
      ASSERT_NEAR(given[t][band].item<double>(),
                  expected[static_cast<std::size_t>(t)][static_cast<std::size_t>(band)],
                  1e-5)
          << "frame " << t << ", band " << band;
    }
  }
}

EncoderSpec encoder_of(double window_seconds, bool pad) {
  EncoderSpec encoder;
  encoder.name = "audio";
  encoder.modality = Modality::kAudio;
  encoder.window_seconds = window_seconds;
  encoder.pad_windows = pad;
  return encoder;
}

TEST(LogMel, IsWhispersWindowWithoutItsSilence) {
  // Shorter than a frame's reach; not a whole number of frames; up to the window's end.
  for (const std::size_t length : {std::size_t{90}, std::size_t{1203}, std::size_t{1600}}) {
    const std::vector<float> samples = noise(length, length);
    const auto expected = plain_log_mel(samples, 10);
    const std::int64_t real = static_cast<std::int64_t>(length + 159) / 160;
    expect_equal(log_mel(samples, encoder_of(0.1, false)), expected, real);
    expect_equal(log_mel(samples, encoder_of(0.1, true)), expected, 10);
  }
}

// What the convolutions of the last token see beside it, and another number of bands.
TEST(LogMel, HasTheSilenceAfterMaskedSound) {
  EncoderSpec encoder = encoder_of(0.1, false);
  encoder.masked_padding = true;
  encoder.mel_bands = 128;
  for (const auto& [length, frames] : {std::pair(90, 3), {330, 5}, {1130, 9}, {1450, 10}}) {
    const std::vector<float> samples = noise(static_cast<std::size_t>(length), 5);
    expect_equal(log_mel(samples, encoder), plain_log_mel(samples, 10, 128), frames);
    EXPECT_EQ(silent_window(length / 16e3, 0, encoder).input.size(0), frames);
  }
}

// The first of the filters that Whisper ships, which librosa made.
TEST(MelFilters, AreThoseOfWhisper) {
  const at::Tensor filters = mel_filters(80);
  EXPECT_EQ(filters.sizes(), (std::vector<std::int64_t>{80, 201}));
  EXPECT_NEAR(filters[0][1].item<double>(), 0.02486259, 1e-8);
  EXPECT_NEAR(filters[1][1].item<double>(), 0.00199082, 1e-8);
  EXPECT_EQ(filters[0][2].item<double>(), 0);
}

TEST(LogMel, OfSilenceIsItsFloor) {
  const at::Tensor mel = log_mel(std::vector<float>(500), encoder_of(30, false));
  EXPECT_TRUE(at::equal(mel, at::full({4, 80}, -1.5, at::kFloat)));
}

TEST(MelWindow, CutsAClipIntoWindowsOfItsOwn) {
  const std::vector<float> clip = noise(5'000, 7);  // 0.3125 s
  const EncoderSpec encoder = encoder_of(0.1, false);
  std::vector<std::int64_t> frames;
  for (std::int64_t window = 0; window < 4; ++window) {
    const SegmentData data = mel_window(clip, window, encoder);
    frames.push_back(data.input.size(0));
    const auto begin = static_cast<std::size_t>(1'600 * window);
    const std::vector<float> part(
        clip.begin() + static_cast<std::ptrdiff_t>(begin),
        clip.begin() + static_cast<std::ptrdiff_t>(std::min(clip.size(), begin + 1'600)));
    EXPECT_TRUE(at::equal(data.input, log_mel(part, encoder)));
    EXPECT_EQ(silent_window(0.3125, window, encoder).input.sizes(), data.input.sizes());
  }
  EXPECT_EQ(frames, (std::vector<std::int64_t>{10, 10, 10, 2}));
  EXPECT_EQ(mel_window(clip, 3, encoder_of(0.1, true)).input.size(0), 10);
  EXPECT_EQ(silent_window(0.3125, 3, encoder_of(0.1, true)).input.size(0), 10);
}

// Rates and lengths at random: what comes out is what sizes promised.
TEST(MelWindow, HasTheFramesThatSecondsPromise) {
  Rng rng(4);
  for (int i = 0; i < 2'000; ++i) {
    const auto rate = 1'000 + static_cast<std::int64_t>(rng.below(95'000));
    const auto length = 1 + static_cast<std::int64_t>(rng.below(200'000));
    const double seconds = static_cast<double>(length) / static_cast<double>(rate);
    const std::int64_t resampled = (length * kMelSampleRate + rate - 1) / rate;
    ASSERT_EQ((resampled + kMelHop - 1) / kMelHop, mel_frames(seconds)) << length << " at " << rate;
  }
}

}  // namespace
}  // namespace entrain::engine
