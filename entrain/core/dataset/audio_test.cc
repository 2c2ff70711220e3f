#include "entrain/core/dataset/audio.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::make_flac;
using oracle::make_wav;
using oracle::WavOptions;

const std::vector<double> kSteps = {0.0, 0.5, -0.5, 0.25, -1.0, 0.75};

std::string refused_audio(const std::string& bytes) {
  const std::string message = error_of<InvalidInput>([&] { decode_audio(bytes, "member 'a'"); });
  EXPECT_TRUE(message.starts_with("member 'a': ")) << message;
  return message;
}

BytesAt reader_of(const std::string& file) {
  return [&](std::int64_t offset, std::int64_t count) {
    EXPECT_TRUE(offset >= 0 && count >= 0 && offset + count <= std::ssize(file));
    return std::string_view(file).substr(static_cast<std::size_t>(offset),
                                         static_cast<std::size_t>(count));
  };
}

TEST(DecodeAudio, ReadsEveryCodingToTheSameSamples) {
  std::vector<WavOptions> codings;
  for (const int bits : {8, 16, 24, 32}) {
    codings.push_back({.bits = bits});
    codings.push_back({.bits = bits, .extensible = true});
  }
  codings.push_back({.bits = 32, .floats = true});
  codings.push_back({.bits = 64, .floats = true, .extensible = true});
  for (const WavOptions& coding : codings) {
    const DecodedAudio audio = decode_audio(make_wav(kSteps, coding), "x");
    EXPECT_EQ(audio.info, (AudioInfo{16'000, 1, 6}));
    for (std::size_t i = 0; i < kSteps.size(); ++i) {
      EXPECT_EQ(audio.samples[i], static_cast<float>(kSteps[i])) << coding.bits << " bits, " << i;
    }
  }
}

TEST(DecodeAudio, ReadsAnOddNumberOfBytes) {
  const std::string wav = make_wav({0.0, 0.5, -0.5}, {.bits = 8});
  for (const std::string& file : {wav, wav.substr(0, wav.size() - 1)}) {  // with its padding or not
    EXPECT_EQ(decode_audio(file, "x").samples, (std::vector<float>{0.0F, 0.5F, -0.5F}));
  }
}

TEST(DecodeAudio, TakesTheMeanOfChannels) {
  const DecodedAudio audio =
      decode_audio(make_wav(kSteps, {.sample_rate = 8'000, .channels = 2}), "x");
  EXPECT_EQ(audio.info, (AudioInfo{8'000, 2, 3}));
  EXPECT_EQ(audio.samples, (std::vector<float>{0.25F, -0.125F, -0.125F}));
}

TEST(AudioInfo, NeedsOnlyAPrefixAndSkipsOtherChunks) {
  const std::string odd("LIST\3\0\0\0abc\0", 12);
  const std::string wav = make_wav(kSteps, {.sample_rate = 22'050, .chunk_before = odd});
  const BytesAt prefix = [&](std::int64_t offset, std::int64_t count) {
    EXPECT_LE(offset + count, 12 + 24 + 12 + 8 + 4);  // looks at the data's first four bytes
    return reader_of(wav)(offset, count);
  };
  const AudioInfo info = audio_info(prefix, static_cast<std::int64_t>(wav.size()), "x");
  EXPECT_EQ(info, (AudioInfo{22'050, 1, 6}));
  EXPECT_DOUBLE_EQ(info.seconds(), 6.0 / 22'050);
}

TEST(DecodeAudio, RefusesWhatIsNoWholeWav) {
  const std::string wav = make_wav(kSteps);
  EXPECT_NE(refused_audio("").find("no WAV"), std::string::npos);
  EXPECT_NE(refused_audio("RIFF").find("no WAV, FLAC, MP3 or Ogg"), std::string::npos);
  EXPECT_NE(refused_audio("fLaC and so on").find("damaged FLAC"), std::string::npos);
  EXPECT_NE(
      refused_audio(wav.substr(0, wav.size() - 1)).find("claims 12 bytes of data, 11 are there"),
      std::string::npos);
  EXPECT_NE(refused_audio(wav.substr(0, 40)).find("No 'data' chunk"), std::string::npos);
  EXPECT_NE(refused_audio(make_wav({})).find("0 samples"), std::string::npos);
  std::string changed = wav;
  changed[20] = 2;  // ADPCM
  EXPECT_NE(refused_audio(changed).find("Invalid bit width"), std::string::npos);
  changed = wav;
  changed[32] = 4;
  EXPECT_NE(refused_audio(changed).find("4 bytes a frame"), std::string::npos);
  changed = wav;
  changed[22] = 0;
  EXPECT_NE(refused_audio(changed).find("hannel"), std::string::npos);
  EXPECT_NE(refused_audio(make_wav(kSteps, {.sample_rate = 999})).find("999 Hz"),
            std::string::npos);
  EXPECT_NE(refused_audio(make_wav({NAN}, {.bits = 32, .floats = true})).find("no finite number"),
            std::string::npos);
}

// Noise, which no coding makes shorter, in multiples of 1/128.
std::vector<double> noise(int count) {
  Rng rng(11);
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    samples.push_back((static_cast<double>(rng.below(256)) - 128) / 128);
  }
  return samples;
}

AudioInfo info_of(const std::string& file) {
  return audio_info(reader_of(file), std::ssize(file), "member 'a'");
}

// With another number of samples in its header.
std::string with_claim(std::string flac, std::int64_t frames) {
  flac[21] = static_cast<char>((flac[21] & 0xF0) | (frames >> 32));
  for (std::size_t i = 0; i < 4; ++i) {
    flac[25 - i] = static_cast<char>(frames >> (8 * i));
  }
  return flac;
}

TEST(DecodeAudio, ReadsFlacToTheSamplesOfTheSameWav) {
  for (const int bits : {8, 16, 24}) {
    for (const int channels : {1, 2}) {
      for (const int frames : {1, 4'095, 4'096, 4'097, 30'000}) {
        const WavOptions options = {.sample_rate = 8'000, .channels = channels, .bits = bits};
        const std::vector<double> samples = noise(frames * channels);
        const std::string flac = make_flac(samples, options);
        const DecodedAudio audio = decode_audio(flac, "x");
        EXPECT_EQ(audio.info, (AudioInfo{8'000, channels, frames}));
        EXPECT_EQ(info_of(flac), audio.info);
        EXPECT_EQ(audio.samples, decode_audio(make_wav(samples, options), "x").samples);
      }
    }
  }
}

TEST(DecodeAudio, ReadsFlacWithoutOtherMetadata) {
  std::string flac = make_flac(kSteps);
  while ((flac[4] & 0x80) == 0) {  // the stream information is the last block only then
    flac[4] = static_cast<char>(flac[42] & 0x80);
    const auto byte = [&](std::size_t i) {
      return std::size_t{static_cast<unsigned char>(flac[i])};
    };
    flac.erase(42, 4 + (byte(43) << 16 | byte(44) << 8 | byte(45)));
  }
  EXPECT_EQ(decode_audio(flac, "x").samples, decode_audio(make_wav(kSteps), "x").samples);
}

TEST(AudioInfo, RefusesFlacThatIsCutAnywhere) {
  const std::string flac = make_flac(noise(5'000));
  for (std::size_t size = 4; size < flac.size(); ++size) {
    const std::string message = error_of<InvalidInput>([&] { info_of(flac.substr(0, size)); });
    EXPECT_TRUE(message.starts_with("member 'a': damaged FLAC: ")) << message;
  }
}

TEST(AudioInfo, RefusesFlacOfAnotherLengthThanItsHeaderClaims) {
  for (const int frames : {100, 4'096, 9'000}) {
    const std::string flac = make_flac(noise(frames));
    const auto refused_claim = [&](std::int64_t claim) {
      return error_of<InvalidInput>([&] { info_of(with_claim(flac, claim)); });
    };
    EXPECT_EQ(info_of(with_claim(flac, frames)).frames, frames);
    for (const std::int64_t claim : {1, frames / 2, frames - 1}) {
      EXPECT_NE(
          refused_claim(claim).find(std::to_string(claim) + " samples a channel, more follow"),
          std::string::npos);
    }
    for (const std::int64_t claim :
         {frames + std::int64_t{1}, 2 * std::int64_t{frames}, kMaxAudioFrames}) {
      EXPECT_NE(refused_claim(claim).find("samples a channel, fewer are there"), std::string::npos);
    }
    // 0: whoever wrote it did not know.
    EXPECT_NE(refused_claim(0).find("0 samples a channel; 1 to"), std::string::npos);
    EXPECT_NE(refused_claim((1LL << 36) - 1).find("68719476735 samples"), std::string::npos);
  }
}

TEST(AudioInfo, ReadsLittleOfALongFlac) {
  const std::string flac = make_flac(noise(1'000'000));
  std::int64_t read = 0;
  const BytesAt counted = [&](std::int64_t offset, std::int64_t count) {
    read += count;
    return reader_of(flac)(offset, count);
  };
  EXPECT_EQ(audio_info(counted, std::ssize(flac), "x").frames, 1'000'000);
  EXPECT_LT(read, std::ssize(flac) / 5);
}

TEST(DecodeAudio, RefusesDamagedFlacFrames) {
  const std::string flac = make_flac(noise(30'000));
  for (std::size_t at = 9'000; at + 9'000 < flac.size(); at += 127) {
    std::string damaged = flac;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_NE(refused_audio(damaged).find("damaged FLAC: "), std::string::npos);
  }
}

TEST(AudioInfo, HandsOnWhatReadingThrows) {
  for (const std::string& file : {make_wav(kSteps), make_flac(noise(9'000))}) {
    for (int good = 0; good < 4; ++good) {
      int calls = 0;
      const BytesAt breaks = [&](std::int64_t offset, std::int64_t count) {
        return calls++ < good ? reader_of(file)(offset, count) : throw SystemFailure("gone");
      };
      EXPECT_EQ(error_of<SystemFailure>([&] { audio_info(breaks, std::ssize(file), "x"); }),
                "gone");
    }
  }
}

std::vector<float> sine(double hertz, int rate, int length) {
  std::vector<float> samples;
  for (int i = 0; i < length; ++i) {
    samples.push_back(static_cast<float>(std::sin(2 * std::numbers::pi * hertz * i / rate)));
  }
  return samples;
}

TEST(Resample, KeepsTonesBelowTheLowerRateAndTheirTime) {
  for (const auto& [from, to] : {std::pair(8'000, 16'000), {44'100, 16'000}, {16'000, 12'345}}) {
    const std::vector<float> result = resample(sine(440, from, from / 2), from, to);
    const std::vector<float> expected = sine(440, to, to / 2 + 1);
    ASSERT_EQ(result.size(),
              static_cast<std::size_t>((from / 2 * std::int64_t{to} + from - 1) / from));
    for (std::size_t i = 100; i + 100 < result.size(); ++i) {
      ASSERT_NEAR(result[i], expected[i], 5e-3) << from << " to " << to << ", sample " << i;
    }
  }
}

TEST(Resample, RemovesTonesAboveTheLowerRate) {
  const std::vector<float> result = resample(sine(11'000, 44'100, 22'050), 44'100, 16'000);
  for (std::size_t i = 100; i + 100 < result.size(); ++i) {
    ASSERT_LT(std::abs(result[i]), 5e-3) << i;
  }
}

// By the formula, sample by sample, with nothing kept between them.
TEST(Resample, IsTheConvolutionThatItsHeaderStates) {
  const std::vector<float> input = sine(700, 8'000, 60);
  const std::vector<float> result = resample(input, 8'000, 10'000);
  for (std::size_t m = 0; m < result.size(); ++m) {
    double sum = 0;
    for (std::size_t n = 0; n < input.size(); ++n) {
      const double x =
          0.99 * 8'000 * (static_cast<double>(m) / 10'000 - static_cast<double>(n) / 8'000);
      if (std::abs(x) < 6) {
        const double pi = std::numbers::pi;
        const double sinc = x == 0 ? 1 : std::sin(pi * x) / (pi * x);
        sum += input[n] * 0.99 * sinc * std::pow(std::cos(pi * x / 12), 2);
      }
    }
    EXPECT_NEAR(result[m], sum, 1e-6) << m;
  }
  EXPECT_EQ(resample(input, 8'000, 8'000), input);
}

void check_end_of_audio(const std::string& wav) {
  audio_info(reader_of(wav), std::ssize(wav), "member 'a'");
}

TEST(AudioInfo, RefusesMoreDataThanTheHeaderClaims) {
  const std::string wav = make_wav(kSteps);
  check_end_of_audio(wav);
  check_end_of_audio(wav + std::string(1000, '\0'));
  check_end_of_audio(make_wav({0.5}, {.bits = 8}) + std::string("LIST\4\0\0\0abcd", 12));
  check_end_of_audio(wav + std::string("LIST\3\0\0\0abc\0", 12) + std::string("id3 \0\0\0\0", 8));
  for (const std::string& more : {std::string("\1\1"),
                                  std::string(40, '\1'),
                                  std::string("LIST\x09\0\0\0abc", 11),
                                  std::string(70'000, '\0') + "x"}) {
    const std::string message = error_of<InvalidInput>([&] { check_end_of_audio(wav + more); });
    EXPECT_NE(message.find("claims 12 bytes of data, " + std::to_string(more.size()) + " more"),
              std::string::npos)
        << message;
  }
}

TEST(DecodeAudio, TakesAStreamsLengthFromItsFile) {
  std::string wav = make_wav(kSteps);
  for (std::size_t i = 40; i < 44; ++i) {
    wav[i] = '\xFF';
  }
  EXPECT_EQ(decode_audio(wav, "x").info.frames, 6);
  EXPECT_EQ(decode_audio(wav + "\1", "x").info.frames, 6);  // half a frame
  check_end_of_audio(wav + std::string(9, '\1'));
  // A size of 0 in a file that goes on, which is how a writer that stops early leaves it.
  std::string stopped = make_wav({});
  EXPECT_NE(refused_audio(stopped).find("0 samples"), std::string::npos);
  stopped += make_wav(kSteps).substr(44);
  EXPECT_EQ(decode_audio(stopped, "x").info.frames, 6);
}

}  // namespace
}  // namespace entrain
