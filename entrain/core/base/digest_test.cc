#include "entrain/core/base/digest.h"

#include <string>

#include <gtest/gtest.h>

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

TEST(Digest, SeesEveryByte) {
  EXPECT_NE(digest_of("a"), digest_of("b"));
  EXPECT_NE(digest_of(std::string("a\0b", 3)), digest_of(std::string("a\0c", 3)));
  EXPECT_NE(digest_of(""), digest_of(std::string(1, '\0')));
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
