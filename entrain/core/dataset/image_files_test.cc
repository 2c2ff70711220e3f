// Files that other programs made, in tests/golden/images, with the pixels that Pillow shows of
// them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/dataset/image.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

fs::path folder_of_images() {
  return oracle::source_root() / "tests" / "golden" / "images";
}

std::string golden_image(const std::string& name) {
  return content_of(folder_of_images() / name);
}

// Of all images, by name; the expected pixels are at NAME.expected.png.
std::map<std::string, std::string> golden_images() {
  std::map<std::string, std::string> images;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of_images())) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".expected.png") && !name.ends_with(".py")) {
      images[name] = content_of(entry.path());
    }
  }
  return images;
}

ImageSize size_of_image(const std::string& bytes) {
  return image_size(bytes_in_memory(bytes), std::ssize(bytes), "member 'a'");
}

// What the file decodes to; nullopt where it is refused.
std::optional<DecodedImage> decoded_or_refused(const std::string& bytes) {
  try {
    return decode_image(bytes, "member 'a'");
  } catch (const InvalidInput&) {
    return std::nullopt;
  }
}

TEST(ImageFiles, EqualPillow) {
  int compared = 0;
  for (const auto& [name, bytes] : golden_images()) {
    const DecodedImage expected = decode_image(golden_image(name + ".expected.png"), name);
    const DecodedImage image = decode_image(bytes, name);
    ASSERT_EQ(image.size, expected.size) << name;
    EXPECT_EQ(size_of_image(bytes), expected.size) << name;
    const auto [found, wanted] =
        std::mismatch(image.rgb.begin(), image.rgb.end(), expected.rgb.begin());
    EXPECT_TRUE(found == image.rgb.end())
        << name << ": value " << found - image.rgb.begin() << " is " << int{*found}
        << ", Pillow's is " << int{*wanted};
    ++compared;
  }
  EXPECT_GE(compared, 50);
}

// Sizes are those of a picture of 20 x 13 pixels.
TEST(ImageFiles, AreTurnedUpright) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const ImageSize shown = orientation < 5 ? ImageSize{20, 13} : ImageSize{13, 20};
    for (const char* format : {".jpg", ".png", ".webp"}) {
      const std::string name = "orientation-" + std::to_string(orientation) + format;
      EXPECT_EQ(size_of_image(golden_image(name)), shown) << name;
      EXPECT_EQ(decode_image(golden_image(name), name).size, shown) << name;
    }
  }
}

TEST(ImageFiles, AreRefusedOrWholeWhenCutAnywhere) {
  for (const auto& [name, bytes] : golden_images()) {
    const bool jpeg = name.ends_with(".jpg");
    const std::vector<std::uint8_t> whole = decode_image(bytes, name).rgb;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::string cut = bytes.substr(0, size);
      const std::string message = oracle::error_of<InvalidInput>([&] { size_of_image(cut); });
      EXPECT_TRUE(message.starts_with("member 'a': ")) << name << " at " << size << message;
      const std::optional<DecodedImage> image = decoded_or_refused(cut);
      EXPECT_TRUE(!image || (jpeg && image->rgb == whole)) << name << " at " << size;
    }
  }
}

TEST(ImageFiles, MayHaveBytesBehindTheirEnd) {
  for (const auto& [name, bytes] : golden_images()) {
    for (const std::string& behind : {std::string(1, '\0'), std::string(100, 'x')}) {
      EXPECT_EQ(size_of_image(bytes + behind), size_of_image(bytes)) << name;
      EXPECT_EQ(decode_image(bytes + behind, name).rgb, decode_image(bytes, name).rgb) << name;
    }
  }
}

// Whatever is damaged: a result of the size that the header states, or a refusal.
TEST(ImageFiles, AreReadOrRefusedWhenDamaged) {
  Rng rng(17);
  int refused = 0;
  for (const auto& [name, bytes] : golden_images()) {
    for (int round = 0; round < 60; ++round) {
      std::string damaged = bytes;
      for (std::uint64_t flips = 1 + rng.below(4); flips > 0; --flips) {
        damaged[rng.below(damaged.size())] = static_cast<char>(rng.below(256));
      }
      const std::optional<DecodedImage> image = decoded_or_refused(damaged);
      refused += image ? 0 : 1;
      if (image) {
        EXPECT_EQ(std::ssize(image->rgb), std::int64_t{image->size.width} * image->size.height * 3);
      }
    }
  }
  EXPECT_GT(refused, 1'000);
}

TEST(ImageFiles, AreMeasuredByFewBytes) {
  for (const auto& [name, bytes] : golden_images()) {
    if (!name.ends_with(".png") && !name.ends_with(".webp")) {
      continue;
    }
    const std::string long_file = bytes + std::string(1'000'000, '\0');
    std::int64_t read = 0;
    const BytesAt counted = [&](std::int64_t offset, std::int64_t count) {
      read += count;
      return bytes_in_memory(long_file)(offset, count);
    };
    image_size(counted, std::ssize(long_file), name);
    EXPECT_LT(read, 250) << name;
  }
}

TEST(ImageFiles, HandOnWhatReadingThrows) {
  for (const char* name : {"plain.gif", "lossy.webp", "colour.jpg", "exif-end.png"}) {
    const std::string bytes = golden_image(name);
    for (int good = 0; good < 2; ++good) {
      int calls = 0;
      const BytesAt breaks = [&](std::int64_t offset, std::int64_t count) {
        return calls++ < good ? bytes_in_memory(bytes)(offset, count) : throw SystemFailure("gone");
      };
      EXPECT_EQ(
          oracle::error_of<SystemFailure>([&] { image_size(breaks, std::ssize(bytes), "x"); }),
          "gone")
          << name;
    }
  }
}

constexpr std::size_t kFrame = 61;  // where the frame of plain.gif begins: behind 16 colours

std::string refused_golden(const std::string& bytes) {
  EXPECT_FALSE(decoded_or_refused(bytes));
  return oracle::error_of<InvalidInput>([&] { size_of_image(bytes); });
}

TEST(ImageFiles, AreRefusedWhereTheyClaimTooManyPixels) {
  std::string gif = golden_image("plain.gif");
  gif.replace(6, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_NE(refused_golden(gif).find("65535x65535"), std::string::npos);
  std::string frame = golden_image("plain.gif");
  frame.replace(kFrame + 5, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_NE(refused_golden(frame).find("65535x65535"), std::string::npos);
  std::string webp = golden_image("metadata.webp");
  webp.replace(24, 6, std::string("\xFE\xFF\x00\xFE\xFF\x00", 6));
  EXPECT_NE(refused_golden(webp).find("65535x65535"), std::string::npos);
  std::string lossless = golden_image("lossless.webp");
  lossless.replace(21, 4, "\xFF\xFF\xFF\x0F");  // 14 bits each
  EXPECT_NE(refused_golden(lossless).find("16384x16384"), std::string::npos);
}

TEST(ImageFiles, AreRefusedWhereTheirDataCannotHoldTheFrame) {
  std::string gif = golden_image("plain.gif");
  gif.replace(kFrame + 5, 4, "\x20\x4E\x88\x13");  // 20,000 x 5,000
  const std::string message = oracle::error_of<InvalidInput>([&] { decode_image(gif, "x"); });
  EXPECT_NE(message.find("too short for the size that its frame claims"), std::string::npos)
      << message;
}

// Shortened, with a RIFF header that knows.
TEST(ImageFiles, AreRefusedWhereAChunkReachesBeyondTheRiff) {
  for (const char* name : {"lossy.webp", "metadata.webp", "animated.webp"}) {
    std::string webp = golden_image(name);
    for (int round = 0; round < 10; ++round) {
      webp.resize(webp.size() - 2);
      for (std::size_t i = 0; i < 4; ++i) {
        webp[4 + i] = static_cast<char>((webp.size() - 8) >> (8 * i));
      }
      EXPECT_NE(refused_golden(webp).find("damaged WebP"), std::string::npos);
    }
  }
}

TEST(ImageFiles, WithADamagedExifBlockAreAsStored) {
  for (const char* format : {".png", ".jpg", ".webp"}) {
    std::string bytes = golden_image("orientation-6" + std::string(format));
    ASSERT_EQ(size_of_image(bytes), (ImageSize{13, 20})) << format;
    // The block's byte order, which a PNG's checksum covers, too.
    const std::size_t block = bytes.find(std::string("MM\0*", 4)) != std::string::npos
                                  ? bytes.find(std::string("MM\0*", 4))
                                  : bytes.find(std::string("II*\0", 4));
    bytes[block] = 'X';
    EXPECT_EQ(size_of_image(bytes), (ImageSize{20, 13})) << format;
    EXPECT_EQ(decode_image(bytes, format).size, (ImageSize{20, 13})) << format;
  }
  std::string unsound = golden_image("orientation-6.png");
  unsound[unsound.find("eXIf") + 4 + 4 + 4 + 2 + 12] ^=
      1;  // behind the entry, in the checksum's sum
  EXPECT_EQ(size_of_image(unsound), (ImageSize{20, 13}));
}

TEST(ImageFiles, AreRefusedWithoutPixels) {
  const std::string gif = golden_image("plain.gif");
  const std::string no_frame = gif.substr(0, kFrame) + ";";
  EXPECT_NE(refused_golden(no_frame).find("no frame"), std::string::npos);
  std::string flat = gif;
  flat.replace(kFrame + 5, 2, std::string(2, '\0'));
  EXPECT_NE(refused_golden(flat).find("no pixels"), std::string::npos);
  std::string webp = golden_image("metadata.webp").substr(0, 30);
  webp[4] = 22;
  webp.replace(5, 3, std::string(3, '\0'));
  EXPECT_NE(refused_golden(webp).find("no pixels"), std::string::npos);
}

TEST(ImageFiles, OfOtherFormatsAreRefusedWithTheWayOut) {
  const std::map<std::string, std::string> others = {{"BM......", "a BMP image"},
                                                     {"II*\n....", "a TIFF image"},
                                                     {std::string("MM\0*....", 8), "a TIFF image"},
                                                     {std::string("\0\0\0\x1C"
                                                                  "ftypavif",
                                                                  12),
                                                      "an AVIF image"},
                                                     {std::string("\0\0\0\x1C"
                                                                  "ftypheic",
                                                                  12),
                                                      "a HEIC image"},
                                                     {"RIFF....WAVE", "another format"}};
  for (const auto& [bytes, kind] : others) {
    const std::string message = refused_golden(bytes);
    EXPECT_NE(message.find(kind), std::string::npos) << message;
    EXPECT_NE(message.find("magick x.tiff x.png"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace entrain
