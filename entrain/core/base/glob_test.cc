#include "entrain/core/base/glob.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

TEST(FitsGlob, TakesTextAsItIs) {
  EXPECT_TRUE(fits_glob("", ""));
  EXPECT_TRUE(fits_glob("a.b", "a.b"));
  EXPECT_FALSE(fits_glob("a.b", "axb"));
  EXPECT_FALSE(fits_glob("a", "ab"));
  EXPECT_FALSE(fits_glob("ab", "a"));
}

TEST(FitsGlob, TakesAnyTextForAStar) {
  EXPECT_TRUE(fits_glob("*", ""));
  EXPECT_TRUE(fits_glob("*.mlp.*", "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(fits_glob("a*b*c", "abbbcabc"));
  EXPECT_TRUE(fits_glob("a**", "a"));
  EXPECT_FALSE(fits_glob("*.mlp.*", "model.layers.0.mlp"));
  EXPECT_FALSE(fits_glob("a*b", "abc"));
}

TEST(FitsGlob, TakesOneCharacterForAQuestionMark) {
  EXPECT_TRUE(fits_glob("layers.?.x", "layers.7.x"));
  EXPECT_FALSE(fits_glob("layers.?.x", "layers.17.x"));
  EXPECT_FALSE(fits_glob("?", ""));
}

TEST(FitsGlob, TakesOneCharacterOfASet) {
  EXPECT_TRUE(fits_glob("blocks.[0-3].*", "blocks.2.norm1"));
  EXPECT_FALSE(fits_glob("blocks.[0-3].*", "blocks.4.norm1"));
  EXPECT_FALSE(fits_glob("blocks.[0-3].*", "blocks.12.norm1"));
  EXPECT_TRUE(fits_glob("[qv]_proj", "v_proj"));
  EXPECT_FALSE(fits_glob("[!qv]_proj", "v_proj"));
  EXPECT_TRUE(fits_glob("[!qv]_proj", "k_proj"));
  EXPECT_TRUE(fits_glob("[]x]", "]"));
  EXPECT_TRUE(fits_glob("[a", "[a"));
}

}  // namespace
}  // namespace entrain
