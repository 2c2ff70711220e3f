#include "entrain/core/dataset/energon.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TemporaryFolder;

constexpr const char* kVqa =
    "sample_type:\n  __module__: megatron.energon\n  __class__: VQASample\n";

std::string columns_of(const std::string& yaml) {
  const TemporaryFolder folder;
  folder.write(".nv-meta/dataset.yaml", yaml);
  return energon_fields(folder.path()).columns.text();
}

std::string energon_refusal(const std::string& yaml) {
  return error_of<InvalidInput>([&] { columns_of(yaml); });
}

TEST(Energon, FieldMapsBecomeColumns) {
  EXPECT_EQ(columns_of(std::string(kVqa) + "field_map:\n  image: jpg,png\n"
                                           "  context: json[question]\n  answers: json[a][0]\n"),
            "image=.jpg,.png;question=.json[question];answer=.json[a][0];video=;audio=");
  // Another order, comments, quotes, braces, and the form of older versions.
  EXPECT_EQ(columns_of("# made by hand\nfield_map: {image: 'png', caption: \"json[text]\"}  # two\n"
                       "__class__: CaptioningWebdataset\n__module__: megatron.energon.flavors\n"),
            "image=.png;caption=.json[text];video=;audio=");
  EXPECT_EQ(columns_of("__module__: megatron.energon\n__class__: CrudeWebdataset\n"), "");
  const TemporaryFolder folder;
  EXPECT_TRUE(energon_fields(folder.path()).columns.empty());
  folder.write(".nv-meta/dataset.yaml",
               std::string(kVqa) + "field_map:\n  context: txt\n  answer_weights: json[w]\n");
  const EnergonFields fields = energon_fields(folder.path());
  EXPECT_EQ(fields.columns.text(), "question=.txt;image=;video=;audio=");
  ASSERT_EQ(fields.notes.size(), 1U);
  EXPECT_NE(fields.notes[0].find("'answer_weights' is not read"), std::string::npos);
}

TEST(Energon, WhatCannotBeExpressedIsRefusedWithTheWayOut) {
  const std::string map = "field_map:\n  image: jpg\n";
  for (const auto& [yaml, reason] :
       {std::pair(std::string(kVqa) + "sample_loader: sample_loader.py:sample_loader\n",
                  "sample_loader is code"),
        std::pair(std::string("sample_type:\n  __module__: megatron.energon\n"
                              "  __class__: InterleavedSample\n") +
                      map,
                  "type 'InterleavedSample' cannot be expressed"),
        std::pair(std::string("sample_type:\n  __module__: mine\n  __class__: Mine\n") + map,
                  "'Mine' of module 'mine'"),
        std::pair(std::string(kVqa) + "field_map:\n  picture: jpg\n", "field 'picture'"),
        std::pair(std::string(kVqa) + "field_map:\n  image: __key__\n", "is no member"),
        std::pair(std::string(kVqa), "has no field_map")}) {
    const std::string message = energon_refusal(yaml);
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_NE(message.find("--columns image=.jpg"), std::string::npos) << message;
    EXPECT_NE(message.find("dataset.yaml"), std::string::npos) << message;
  }
  EXPECT_NE(
      energon_refusal(std::string(kVqa) + "field_map: &anchor\n  a: b\n").find("another form"),
      std::string::npos);
}

TEST(Energon, ExcludedShardsAreNoneOfASplit) {
  const TemporaryFolder folder;
  folder.write(
      ".nv-meta/split.yaml",
      "exclude:\n- b.tar\nsplit_parts:\n  train:\n    - a.tar\n    - b.tar\n  val: [c.tar]\n");
  using Paths = std::vector<std::filesystem::path>;
  EXPECT_TRUE(is_energon_folder(folder.path()));
  EXPECT_EQ(energon_shards(folder.path(), "train"), Paths{folder.path() / "a.tar"});
  EXPECT_EQ(energon_shards(folder.path(), "val"), Paths{folder.path() / "c.tar"});
  folder.write(".nv-meta/split.yaml", "exclude:\n- b.tar/0007\nsplit_parts:\n  train: [a.tar]\n");
  EXPECT_NE(error_of<InvalidInput>([&] {
              energon_shards(folder.path(), "train");
            }).find("'b.tar/0007' is excluded, a single sample"),
            std::string::npos);
}

}  // namespace
}  // namespace entrain
