#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/dataset/image_formats.h"

namespace entrain {
namespace {

std::string exif_number(std::uint32_t value, int bytes, bool little_endian) {
  std::string out;
  for (int i = 0; i < bytes; ++i) {
    const int shift = 8 * (little_endian ? i : bytes - 1 - i);
    out.push_back(static_cast<char>(value >> shift));
  }
  return out;
}

struct ExifEntry {
  std::uint32_t tag, type, count;
  std::string value;  // four bytes
};

std::string exif_block(const std::vector<ExifEntry>& entries, bool little_endian = true) {
  std::string block = little_endian ? std::string("II*\0", 4) : std::string("MM\0*", 4);
  block += exif_number(8, 4, little_endian);
  block += exif_number(static_cast<std::uint32_t>(entries.size()), 2, little_endian);
  for (const ExifEntry& entry : entries) {
    block += exif_number(entry.tag, 2, little_endian) + exif_number(entry.type, 2, little_endian) +
             exif_number(entry.count, 4, little_endian) + entry.value;
  }
  return block;
}

const ExifEntry kTurned = {0x0112, 3, 1, std::string("\6\0\0\0", 4)};

TEST(ExifOrientation, IsReadInBothByteOrdersAndEveryIntegerType) {
  EXPECT_EQ(exif_orientation(exif_block({kTurned})), 6);
  EXPECT_EQ(exif_orientation(std::string("Exif\0\0", 6) + exif_block({kTurned})), 6);
  EXPECT_EQ(exif_orientation(exif_block({{0x0112, 1, 1, std::string("\3\0\0\0", 4)}})), 3);
  EXPECT_EQ(exif_orientation(exif_block({{0x0112, 4, 1, std::string("\5\0\0\0", 4)}})), 5);
  EXPECT_EQ(exif_orientation(exif_block({{0x0112, 3, 1, std::string("\0\7\0\0", 4)}}, false)), 7);
  EXPECT_EQ(exif_orientation(exif_block({{0x0112, 4, 1, std::string("\0\0\0\2", 4)}}, false)), 2);
}

TEST(ExifOrientation, IsOneWhereNothingSaysOtherwise) {
  EXPECT_EQ(exif_orientation(""), 1);
  EXPECT_EQ(exif_orientation(exif_block({})), 1);
  EXPECT_EQ(exif_orientation(exif_block({{0x0110, 3, 1, std::string("\6\0\0\0", 4)}})), 1);
  for (const char value : {'\0', '\x09', '\x7F'}) {
    EXPECT_EQ(exif_orientation(exif_block({{0x0112, 3, 1, value + std::string(3, '\0')}})), 1);
  }
  EXPECT_EQ(exif_orientation(exif_block({{0x0112, 3, 2, kTurned.value}})), 1);
  EXPECT_EQ(exif_orientation(exif_block({{0x0112, 2, 1, kTurned.value}})), 1);
  std::string other = exif_block({kTurned});
  other[2] = 43;
  EXPECT_EQ(exif_orientation(other), 1);
}

TEST(ExifOrientation, CountsInDamagedBlocksUpToTheDamage) {
  const ExifEntry sound = {0x010E, 2, 4, "abc"};
  const ExifEntry outside = {0x010F, 2, 100, std::string("\x40\0\0\0", 4)};
  EXPECT_EQ(exif_orientation(exif_block({{sound.tag, 2, 4, std::string("abc\0", 4)}, kTurned})), 6);
  EXPECT_EQ(exif_orientation(exif_block({kTurned, outside})), 6);
  EXPECT_EQ(exif_orientation(exif_block({outside, kTurned})), 1);
  const std::string block = exif_block({kTurned});
  for (std::size_t size = 0; size < block.size(); ++size) {
    EXPECT_EQ(exif_orientation(block.substr(0, size)), 1) << size;
  }
  std::string more = block;
  more[8] = '\xFF';  // claims 255 entries
  EXPECT_EQ(exif_orientation(more), 6);
  std::string far = block;
  far.replace(4, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_EQ(exif_orientation(far), 1);
}

TEST(ExifOrientation, IsOneToEightWhateverTheBytes) {
  Rng rng(3);
  const std::string block = exif_block({{0x010F, 2, 9, std::string("\x40\0\0\0", 4)}, kTurned});
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = block.substr(0, rng.below(block.size() + 1));
    for (std::uint64_t flips = rng.below(4); flips > 0 && !damaged.empty(); --flips) {
      damaged[rng.below(damaged.size())] = static_cast<char>(rng.below(256));
    }
    const int orientation = exif_orientation(damaged);
    ASSERT_TRUE(orientation >= 1 && orientation <= 8);
  }
}

}  // namespace
}  // namespace entrain
