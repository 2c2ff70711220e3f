#include "entrain/core/dataset/image.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;

std::string grey_jpeg(int width, int height, bool progressive) {
  return oracle::make_jpeg(width,
                           height,
                           std::string(static_cast<std::size_t>(width * height), 'x'),
                           {.progressive = progressive, .components = 1});
}

// The size of a file that is read where image_size() looks, and nowhere outside.
ImageSize measured(const std::string& bytes) {
  const BytesAt reader = [&](std::int64_t offset, std::int64_t size) {
    EXPECT_TRUE(offset >= 0 && size >= 0 && offset + size <= std::ssize(bytes));
    return bytes_in_memory(bytes)(offset, size);
  };
  return image_size(reader, std::ssize(bytes), "member 'a'");
}

std::string refused_image(const std::string& bytes) {
  const std::string message = error_of<InvalidInput>([&] { measured(bytes); });
  EXPECT_TRUE(message.starts_with("member 'a': ")) << message;
  return message;
}

// A PNG header whose checksum holds.
std::string png_with_size(std::uint32_t width, std::uint32_t height) {
  return oracle::make_png(
      static_cast<int>(width), static_cast<int>(height), std::string(height == 0 ? 0 : 1, 'x'));
}

TEST(ImageSize, IsReadFromHeaders) {
  EXPECT_EQ(measured(oracle::flat_png(31, 17, 1, 2, 3)), (ImageSize{31, 17}));
  EXPECT_EQ(measured(grey_jpeg(33, 9, false)), (ImageSize{33, 9}));
  EXPECT_EQ(measured(grey_jpeg(33, 9, true)), (ImageSize{33, 9}));
}

TEST(ImageSize, SkipsMetadataInFrontOfTheFrame) {
  std::string jpeg = grey_jpeg(33, 9, false);
  std::string segment("\xFF\xE1\xFF\xFF", 4);
  segment += std::string(65'533, '\xC0');
  jpeg.insert(2, segment + "\xFF\xFF" + segment);
  EXPECT_EQ(measured(jpeg), (ImageSize{33, 9}));
}

TEST(ImageSize, RefusesTruncatedHeaders) {
  const std::string png = oracle::flat_png(31, 17, 1, 2, 3);
  for (std::size_t size = 0; size < 33; ++size) {
    refused_image(png.substr(0, size));
  }
  const std::string jpeg = grey_jpeg(33, 9, false);
  const std::size_t frame = jpeg.find("\xFF\xC0");
  for (std::size_t size = 0; size < frame + 13; ++size) {
    refused_image(jpeg.substr(0, size));
  }
}

TEST(ImageSize, NoticesEveryFlippedBitOfAPngHeader) {
  const std::string png = oracle::flat_png(31, 17, 1, 2, 3);
  for (std::size_t bit = 0; bit < std::size_t{33} * 8; ++bit) {
    std::string damaged = png;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ static_cast<char>(1U << bit % 8));
    refused_image(damaged);
  }
}

TEST(ImageSize, RefusesOtherFormatsAndKinds) {
  EXPECT_NE(refused_image("").find("empty"), std::string::npos);
  EXPECT_NE(refused_image("............").find("another format"), std::string::npos);
  std::string lossless = grey_jpeg(8, 8, false);
  lossless[lossless.find("\xFF\xC0") + 1] = '\xC3';
  EXPECT_NE(refused_image(lossless).find("SOF type 0xc3"), std::string::npos);
  std::string arithmetic = grey_jpeg(8, 8, false);
  arithmetic[arithmetic.find("\xFF\xC0") + 1] = '\xC9';
  EXPECT_NE(refused_image(arithmetic).find("arithmetically"), std::string::npos);
  std::string stray = grey_jpeg(8, 8, false);
  stray.insert(stray.find("\xFF\xC0"), "x");
  EXPECT_NE(refused_image(stray).find("1 extraneous bytes"), std::string::npos);
  std::string deep = grey_jpeg(8, 8, false);
  deep[deep.find("\xFF\xC0") + 4] = 12;
  EXPECT_NE(refused_image(deep).find("precision 12"), std::string::npos);
}

TEST(ImageSize, RefusesImagesThatWouldFillTheMemory) {
  EXPECT_NE(refused_image(png_with_size(100'000, 100'000)).find("100000x100000"),
            std::string::npos);
  refused_image(png_with_size(2'000'000'000, 1));
  refused_image(png_with_size(0, 7));
  std::string jpeg = grey_jpeg(8, 8, false);
  jpeg.replace(jpeg.find("\xFF\xC0") + 5, 4, "\xFF\xDC\xFF\xDC");
  EXPECT_NE(refused_image(jpeg).find("65500x65500"), std::string::npos);
  jpeg.replace(jpeg.find("\xFF\xC0") + 5, 4, std::string("\0\0\0\x08", 4));
  refused_image(jpeg);
}

TEST(ImageSize, RefusesImpossibleDepths) {
  refused_image(oracle::make_png(1, 1, "xxx", {.depth = 4, .colour = 2}));
  refused_image(oracle::make_png(1, 1, "xxx", {.depth = 8, .colour = 5}));
}

TEST(ImageEnd, RefusesEveryCutOfAPng) {
  const std::string png = oracle::flat_png(31, 17, 1, 2, 3);
  measured(png);
  measured(png + "behind");
  for (std::size_t size = 33; size < png.size(); ++size) {
    const std::string message = error_of<InvalidInput>([&] { measured(png.substr(0, size)); });
    EXPECT_NE(message.find("member 'a': damaged PNG: it ends"), std::string::npos) << message;
  }
  std::string longer = png;  // a chunk that claims more than there is
  longer[33] = 1;
  EXPECT_NE(error_of<InvalidInput>([&] { measured(longer); }).find("at byte 33"),
            std::string::npos);
}

TEST(ImageEnd, RefusesEveryCutOfAJpeg) {
  for (const bool progressive : {false, true}) {
    const std::string jpeg = grey_jpeg(64, 40, progressive);
    measured(jpeg);
    const std::size_t frame = jpeg.find(progressive ? "\xFF\xC2" : "\xFF\xC0");
    for (std::size_t size = frame + 13; size < jpeg.size(); ++size) {
      const std::string cut = jpeg.substr(0, size);
      for (const std::string& padding : {std::string(), std::string(100, '\0')}) {
        EXPECT_NE(error_of<InvalidInput>([&] { measured(cut + padding); }).find("end marker"),
                  std::string::npos)
            << size;
      }
    }
  }
}

TEST(ImageEnd, LeavesAloneWhatFollowsAJpeg) {
  const std::string jpeg = grey_jpeg(33, 9, false);
  measured(jpeg + std::string(200, '\0'));
  measured(jpeg + "\r\n");
  measured(jpeg + "\xFF\xFF");
  measured(jpeg + "a maker's notes");  // found from its beginning
}

// A thumbnail within the metadata has an end marker of its own.
TEST(ImageEnd, IsNotSatisfiedWithAThumbnail) {
  const std::string jpeg = grey_jpeg(33, 9, false);
  std::string segment("\xFF\xE1\x00\x00", 4);
  segment += jpeg;
  segment[2] = static_cast<char>((segment.size() - 2) >> 8U);
  segment[3] = static_cast<char>((segment.size() - 2) & 0xFFU);
  std::string whole = jpeg;
  whole.insert(2, segment);
  measured(whole + "notes");
  error_of<InvalidInput>([&] { measured(whole.substr(0, whole.size() - 2) + "notes"); });
}

}  // namespace
}  // namespace entrain
