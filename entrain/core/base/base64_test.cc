#include "entrain/core/base/base64.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

// Vectors of RFC 4648, section 10.
TEST(Base64, DecodesWithAndWithoutPadding) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("Zg=="), "f");
  EXPECT_EQ(decode_base64("Zm8"), "fo");
  EXPECT_EQ(decode_base64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decode_base64("Zm9v\nYmFy\n"), "foobar");
  EXPECT_EQ(decode_base64("AP+/"), std::string("\0\xFF\xBF", 3));
}

TEST(Base64, RefusesOtherCharacters) {
  EXPECT_EQ(decode_base64("Zm9v!"), std::nullopt);
  EXPECT_EQ(decode_base64("Zg==Zg"), std::nullopt);
  EXPECT_EQ(decode_base64("-_-_"), std::nullopt);
}

TEST(Base64, WritesWhatItReads) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(decode_base64(encode_base64(bytes)), bytes);
    EXPECT_EQ(encode_base64(bytes).size(), (bytes.size() + 2) / 3 * 4);
    bytes.push_back(static_cast<char>(i * 89));
  }
  EXPECT_EQ(encode_base64("f"), "Zg==");
  EXPECT_EQ(encode_base64("fo"), "Zm8=");
  EXPECT_EQ(encode_base64("foo\xff"), "Zm9v/w==");
}

}  // namespace
}  // namespace entrain
