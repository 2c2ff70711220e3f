#include "entrain/core/base/digest.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// The values for empty input are those of the XXH3 specification.
TEST(Digest, IsXxh3OfTheBytes) {
  EXPECT_EQ(digest_of(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_of(""), 0x2d06800538d394c2U);
}

TEST(Digest, IsGoldenForText) {
  EXPECT_EQ(digest_of("entrain"), "c9044544a1f42327c8fa33488807b552");
  EXPECT_EQ(hash_of("vision.blocks.0.attn.qkv.weight"), 0xed44504c033d57baU);
}

TEST(Digest, IsShortInMessages) {
  EXPECT_EQ(short_digest(digest_of("entrain")), "c9044544");
}

TEST(Digest, SeesEveryByte) {
  EXPECT_NE(digest_of("a"), digest_of("b"));
  EXPECT_NE(digest_of(std::string("a\0b", 3)), digest_of(std::string("a\0c", 3)));
  EXPECT_NE(digest_of(""), digest_of(std::string(1, '\0')));
}

TEST(Digest, OfAFileIsThatOfItsBytes) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("entrain-digest-" + std::to_string(::getpid()));
  // Around the size of the pieces in which a file is read.
  for (const std::size_t size : {0UL, 1UL, (1UL << 20U) - 1, 1UL << 20U, (1UL << 20U) + 1}) {
    std::string bytes(size, 'x');
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<char>(i * 31 % 251);
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_EQ(digest_of_file(path), digest_of(bytes)) << size;
  }
  std::filesystem::remove(path);
  EXPECT_THROW(digest_of_file(path), SystemFailure);
  EXPECT_THROW(digest_of_file(std::filesystem::temp_directory_path()), SystemFailure);
}

TEST(Digest, HasThirtyTwoLowerCaseDigits) {
  for (int i = 0; i < 300; ++i) {
    const std::string digest = digest_of(std::to_string(i));
    EXPECT_EQ(digest.size(), 32U);
    EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos) << digest;
  }
}

}  // namespace
}  // namespace entrain
