// MP3, Ogg Vorbis and Ogg Opus.
#include <algorithm>
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/dataset/audio.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::Compression;
using oracle::make_compressed;

constexpr std::array<Compression, 3> kCompressions = {
    Compression::kMp3, Compression::kVorbis, Compression::kOpus};

// A tone that grows, and noise.
std::vector<double> sound(int count) {
  Rng rng(7);
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    const double noise = static_cast<double>(rng.below(1000)) / 1000 - 0.5;
    samples.push_back((0.3 * std::sin(0.05 * i) + 0.2 * noise) * i / count);
  }
  return samples;
}

AudioInfo info_of_sound(const std::string& bytes) {
  const BytesAt reader = [&](std::int64_t offset, std::int64_t size) {
    EXPECT_TRUE(offset >= 0 && size >= 0 && offset + size <= std::ssize(bytes));
    return bytes_in_memory(bytes)(offset, size);
  };
  return audio_info(reader, std::ssize(bytes), "member 'a'");
}

std::string refused_sound(const std::string& bytes) {
  const std::string message = oracle::error_of<InvalidInput>([&] { info_of_sound(bytes); });
  EXPECT_TRUE(message.starts_with("member 'a': ")) << message;
  oracle::error_of<InvalidInput>([&] { decode_audio(bytes, "member 'a'"); });
  return message;
}

TEST(CompressedAudio, HasTheLengthAndSamplesOfLibsndfile) {
  for (const Compression compression : kCompressions) {
    for (const int rate : {16'000, 48'000}) {
      for (const int channels : {1, 2}) {
        for (const int frames : {1, 1'000, 60'000}) {
          const std::string bytes = make_compressed(
              compression, sound(frames * channels), {.sample_rate = rate, .channels = channels});
          const AudioInfo expected = {rate, channels, frames};
          EXPECT_EQ(info_of_sound(bytes), expected);
          const DecodedAudio audio = decode_audio(bytes, "x");
          EXPECT_EQ(audio.info, expected);
          EXPECT_TRUE(audio.samples == oracle::read_by_libsndfile(bytes))
              << static_cast<int>(compression) << ", " << rate << " Hz, " << channels
              << " channels, " << frames << " samples";
        }
      }
    }
  }
}

TEST(CompressedAudio, IsRefusedOrWholeWhenCutAnywhere) {
  for (const Compression compression : kCompressions) {
    const std::string bytes = make_compressed(compression, sound(6'000));
    const std::vector<float> whole = decode_audio(bytes, "x").samples;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      try {
        const DecodedAudio audio = decode_audio(bytes.substr(0, size), "x");
        EXPECT_EQ(compression, Compression::kMp3);
        EXPECT_EQ(audio.samples, whole) << size;
      } catch (const InvalidInput&) {
        oracle::error_of<InvalidInput>([&] { info_of_sound(bytes.substr(0, size)); });
      }
    }
  }
}

TEST(CompressedAudio, IsMeasuredByReadingItOnce) {
  for (const Compression compression : kCompressions) {
    const std::string bytes = make_compressed(compression, sound(2'000'000));
    std::int64_t read = 0;
    const BytesAt counted = [&](std::int64_t offset, std::int64_t count) {
      read += count;
      return bytes_in_memory(bytes)(offset, count);
    };
    EXPECT_EQ(audio_info(counted, std::ssize(bytes), "x").frames, 2'000'000);
    EXPECT_LT(read, std::ssize(bytes) * 3 / 2 + 300'000);
  }
}

TEST(CompressedAudio, HandsOnWhatReadingThrows) {
  for (const Compression compression : kCompressions) {
    const std::string bytes = make_compressed(compression, sound(20'000));
    for (int good = 0; good < 4; ++good) {
      int calls = 0;
      const BytesAt breaks = [&](std::int64_t offset, std::int64_t count) {
        return calls++ < good ? bytes_in_memory(bytes)(offset, count) : throw SystemFailure("gone");
      };
      EXPECT_EQ(
          oracle::error_of<SystemFailure>([&] { audio_info(breaks, std::ssize(bytes), "x"); }),
          "gone");
    }
  }
}

TEST(CompressedAudio, SurvivesDamage) {
  Rng rng(5);
  for (const Compression compression : kCompressions) {
    const std::string bytes = make_compressed(compression, sound(4'000));
    for (int round = 0; round < 300; ++round) {
      std::string damaged = bytes;
      for (std::uint64_t flips = 1 + rng.below(4); flips > 0; --flips) {
        damaged[rng.below(damaged.size())] = static_cast<char>(rng.below(256));
      }
      try {
        const AudioInfo info = info_of_sound(damaged);
        EXPECT_EQ(decode_audio(damaged, "x").info, info);
      } catch (const InvalidInput&) {
      }
    }
  }
}

// Bytes of the frame that an MP3 of 16 kHz begins with.
std::size_t first_frame_bytes(const std::string& mp3) {
  constexpr std::array<int, 15> kKilobits = {
      0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160};  // MPEG 2
  const auto byte = static_cast<unsigned char>(mp3[2]);
  return static_cast<std::size_t>(72 * 1000 * kKilobits.at(byte >> 4U) / 16'000) +
         ((byte >> 1U) & 1U);
}

TEST(Mp3, WithoutInfoTagHasAllItsFrames) {
  const std::string tagged = make_compressed(Compression::kMp3, sound(60'000));
  const std::string bytes = tagged.substr(first_frame_bytes(tagged));
  const AudioInfo info = info_of_sound(bytes);
  EXPECT_EQ(info.frames % 576, 0);
  EXPECT_GE(info.frames, 60'000 + 576);  // with the encoder's delay
  EXPECT_LE(info.frames, 60'000 + 5 * 576);
  const DecodedAudio audio = decode_audio(bytes, "x");
  EXPECT_EQ(audio.info, info);
  // libsndfile guesses the length from the first frames, and reads no more.
  const std::vector<float> guessed = oracle::read_by_libsndfile(bytes);
  ASSERT_LT(guessed.size(), audio.samples.size());
  EXPECT_TRUE(std::equal(guessed.begin(), guessed.end(), audio.samples.begin()));
}

TEST(Mp3, MayHaveTagsAround) {
  const std::string bytes = make_compressed(Compression::kMp3, sound(6'000));
  std::string front("ID3\4\0\0\0\0\2\0", 10);  // 256 bytes
  front += std::string(256, '\0');
  const std::string behind = "TAG" + std::string(125, 'x');
  EXPECT_EQ(decode_audio(front + bytes + behind, "x").samples, decode_audio(bytes, "x").samples);
  EXPECT_NE(refused_sound(front + bytes.substr(0, bytes.size() - 800)).find("Info tag claims"),
            std::string::npos);
}

TEST(Mp3, IsRefusedWithMoreOrLessThanItsTagClaims) {
  const std::string bytes = make_compressed(Compression::kMp3, sound(20'000));
  EXPECT_NE(refused_sound(bytes.substr(0, bytes.size() / 2))
                .find("damaged MP3: its Info tag claims 37 MPEG frames, "),
            std::string::npos);
  EXPECT_NE(refused_sound(bytes + bytes).find("claims 37 MPEG frames, "), std::string::npos);
}

TEST(Mp3, OfOtherLayersIsRefused) {
  std::string layer_2("ID3\4\0\0\0\0\0\0", 10);
  for (int frame = 0; frame < 4; ++frame) {
    layer_2 += std::string("\xFF\xFD\x14\x00", 4) + std::string(100, '\0');  // 32 kbit/s, 44.1 kHz
  }
  EXPECT_NE(refused_sound(layer_2).find("MP3"), std::string::npos);
}

std::vector<std::size_t> pages_of(const std::string& ogg) {
  std::vector<std::size_t> pages;
  for (std::size_t at = ogg.find("OggS"); at != std::string::npos; at = ogg.find("OggS", at + 1)) {
    pages.push_back(at);
  }
  return pages;
}

TEST(Ogg, IsRefusedWithoutEveryPage) {
  for (const Compression compression : {Compression::kVorbis, Compression::kOpus}) {
    const std::string bytes = make_compressed(compression, sound(60'000));
    const std::vector<std::size_t> pages = pages_of(bytes);
    ASSERT_GT(pages.size(), 4U);
    std::string missing = bytes;
    missing.erase(pages[3], pages[4] - pages[3]);
    EXPECT_NE(refused_sound(missing).find("page 3 is missing"), std::string::npos);
    EXPECT_NE(refused_sound(bytes.substr(0, pages.back())).find("without its last page"),
              std::string::npos);
    for (std::size_t at = 0; at < bytes.size(); at += 97) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      refused_sound(damaged);
    }
  }
}

TEST(Ogg, HasOneStreamAndMayHaveOtherBytesBehind) {
  for (const Compression compression : {Compression::kVorbis, Compression::kOpus}) {
    const std::string bytes = make_compressed(compression, sound(6'000));
    const std::vector<float> samples = decode_audio(bytes, "x").samples;
    EXPECT_EQ(decode_audio(bytes + std::string(100'000, '\0'), "x").samples, samples);
    EXPECT_EQ(decode_audio(bytes + "notes", "x").samples, samples);
    EXPECT_NE(refused_sound(bytes + bytes).find("several streams"), std::string::npos);
  }
}

}  // namespace
}  // namespace entrain
