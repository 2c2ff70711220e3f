#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/dataset/image.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::make_png;

std::string random_bytes(std::size_t count, std::uint64_t seed) {
  Rng rng(seed);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<char>(rng.below(256)));
  }
  return bytes;
}

std::vector<std::uint8_t> as_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::vector<std::uint8_t> decoded(const std::string& bytes) {
  return decode_image(bytes, "x").rgb;
}

using Bytes = std::vector<std::uint8_t>;

TEST(DecodeImage, KeepsRgb) {
  const std::string rows = random_bytes(std::size_t{13} * 7 * 3, 1);
  const DecodedImage image = decode_image(make_png(13, 7, rows), "x");
  EXPECT_EQ(image.size, (ImageSize{13, 7}));
  EXPECT_EQ(image.rgb, as_bytes(rows));
}

TEST(DecodeImage, ReadsInterlacedImages) {
  for (const int width : {1, 3, 8, 13}) {
    for (const int height : {1, 2, 5, 9}) {
      const std::string rows = random_bytes(static_cast<std::size_t>(width * height * 3), 2);
      EXPECT_EQ(decoded(make_png(width, height, rows, {.interlaced = true})), as_bytes(rows));
    }
  }
}

TEST(DecodeImage, BlendsAlphaOverWhite) {
  const std::string rows(
      "\x0A\x14\x1E\xFF"
      "\x0A\x14\x1E\x00"
      "\x0A\x14\x1E\x80",
      12);
  EXPECT_EQ(decoded(make_png(3, 1, rows, {.colour = 6})),
            (Bytes{10, 20, 30, 255, 255, 255, 132, 137, 142}));
  EXPECT_EQ(decoded(make_png(1, 1, "\x0D\x0E\xF0\x80", {.colour = 6})), (Bytes{134, 134, 247}));
  const std::string grey("\x64\xFF\x64\x00", 4);
  EXPECT_EQ(decoded(make_png(2, 1, grey, {.colour = 4})), (Bytes{100, 100, 100, 255, 255, 255}));
}

TEST(DecodeImage, ReadsGreysOfFewBits) {
  EXPECT_EQ(decoded(make_png(2, 1, "\x40", {.depth = 1, .colour = 0})),
            (Bytes{0, 0, 0, 255, 255, 255}));
  EXPECT_EQ(decoded(make_png(2, 1, "\x1F", {.depth = 4, .colour = 0})),
            (Bytes{17, 17, 17, 255, 255, 255}));
  EXPECT_EQ(decoded(make_png(1, 1, "\x7B", {.colour = 0})), (Bytes{123, 123, 123}));
}

TEST(DecodeImage, ReadsSixteenBits) {
  EXPECT_EQ(decoded(make_png(1, 1, std::string("\x80\x80\x00\x7F\xFF\xFF", 6), {.depth = 16})),
            (Bytes{128, 0, 255}));
}

TEST(DecodeImage, ReadsPalettesWithTransparency) {
  const std::string palette("\x01\x02\x03\xC8\x00\x00", 6);
  const std::string transparency("\xFF\x00", 2);
  EXPECT_EQ(decoded(make_png(2, 1, std::string("\0\1", 2), {.colour = 3, .palette = palette})),
            (Bytes{1, 2, 3, 200, 0, 0}));
  EXPECT_EQ(decoded(make_png(2,
                             1,
                             std::string("\0\1", 2),
                             {.colour = 3, .palette = palette, .transparency = transparency})),
            (Bytes{1, 2, 3, 255, 255, 255}));
}

TEST(DecodeImage, ReadsBaselineAndProgressiveJpegs) {
  std::string pixels;
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 48; ++x) {
      pixels += {static_cast<char>(4 * x), static_cast<char>(6 * y), '\x40'};
    }
  }
  for (const bool progressive : {false, true}) {
    const DecodedImage image =
        decode_image(oracle::make_jpeg(48, 32, pixels, {.progressive = progressive}), "x");
    ASSERT_EQ(image.size, (ImageSize{48, 32}));
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      ASSERT_LE(std::abs(image.rgb[i] - static_cast<unsigned char>(pixels[i])), 12) << i;
    }
  }
  const DecodedImage grey =
      decode_image(oracle::make_jpeg(8, 8, std::string(64, '\x50'), {.components = 1}), "x");
  EXPECT_EQ(grey.rgb, Bytes(192, 0x50));
}

TEST(DecodeImage, RefusesTruncatedImagesAtEveryLength) {
  const std::string png = make_png(13, 7, random_bytes(std::size_t{13} * 7 * 3, 3));
  for (std::size_t size = 0; size < png.size(); ++size) {
    const std::string message =
        error_of<InvalidInput>([&] { decode_image(png.substr(0, size), "member 'a'"); });
    EXPECT_TRUE(message.starts_with("member 'a'")) << message;
  }
  for (const bool progressive : {false, true}) {
    const std::string jpeg =
        oracle::make_jpeg(40, 40, random_bytes(4800, 4), {.progressive = progressive});
    for (std::size_t size = 0; size + 2 < jpeg.size(); size += 7) {
      error_of<InvalidInput>([&] { decode_image(jpeg.substr(0, size), "x"); });
    }
  }
}

TEST(DecodeImage, RefusesJpegsWhoseDataEndBeforeTheImage) {
  const std::string jpeg = oracle::make_jpeg(40, 40, random_bytes(4800, 4));
  const std::string message = error_of<InvalidInput>(
      [&] { decode_image(jpeg.substr(0, jpeg.size() - 500) + "\xFF\xD9", "x"); });
  EXPECT_NE(message.find("damaged JPEG"), std::string::npos) << message;
}

TEST(DecodeImage, NoticesEveryFlippedByteOfAPng) {
  const std::string png = make_png(5, 4, random_bytes(60, 5));
  for (std::size_t position = 0; position < png.size(); ++position) {
    std::string damaged = png;
    damaged[position] = static_cast<char>(damaged[position] ^ 0x04);
    error_of<InvalidInput>([&] { decode_image(damaged, "x"); });
  }
}

TEST(DecodeImage, SurvivesDamagedJpegs) {
  const std::string jpeg = oracle::make_jpeg(24, 24, random_bytes(1728, 6), {.progressive = true});
  Rng rng(11);
  int refused = 0;
  for (int round = 0; round < 2'000; ++round) {
    std::string damaged = jpeg;
    for (std::uint64_t flips = 1 + rng.below(4); flips > 0; --flips) {
      damaged[rng.below(damaged.size())] = static_cast<char>(rng.below(256));
    }
    try {
      const DecodedImage image = decode_image(damaged, "x");
      EXPECT_EQ(std::ssize(image.rgb), std::int64_t{image.size.width} * image.size.height * 3);
    } catch (const InvalidInput&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(DecodeImage, RefusesAPngThatIsTooShortForWhatItClaims) {
  const std::string message =
      error_of<InvalidInput>([] { decode_image(make_png(10'000, 10'000, "x"), "x"); });
  EXPECT_NE(message.find("too short for the size"), std::string::npos) << message;
}

TEST(DecodeImage, RefusesAnImageWithTooFewRows) {
  error_of<InvalidInput>([] { decode_image(make_png(4, 4, std::string(12, 'x')), "x"); });
}

}  // namespace
}  // namespace entrain
