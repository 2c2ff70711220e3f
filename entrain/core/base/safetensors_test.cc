#include "entrain/core/base/safetensors.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

std::string refusal(std::string_view json, std::uint64_t data_bytes) {
  try {
    parse_safetensors_header(json, data_bytes, "x");
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SafetensorsHeader, GivesTensorsByOffsetAndMetadata) {
  const SafetensorsHeader header = parse_safetensors_header(
      R"({"b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [12, 20]},
          "__metadata__": {"format": "pt"},
          "a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
          "none": {"dtype": "U8", "shape": [0, 5], "data_offsets": [12, 12]}})",
      20,
      "x");
  ASSERT_EQ(header.entries.size(), 3U);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[1].name, "none");
  EXPECT_EQ(header.entries[2].name, "b");
  EXPECT_EQ(header.entries[2].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(header.entries[2].begin, 12U);
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, RefusesWhatDoesNotFillTheData) {
  EXPECT_EQ(refusal(R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [4, 16]}})", 16),
            "x: a: data starts at byte 4, must start at 0 where the tensor before it ends");
  EXPECT_EQ(refusal(R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})", 16),
            "x: the tensors end at byte 12, the data at 16: the header and the file do not belong "
            "together");
  EXPECT_EQ(refusal(R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 16]}})", 16),
            "x: a: data_offsets [0, 16] must hold the 12 bytes of its shape within the file's 16 "
            "bytes of data");
}

TEST(SafetensorsHeader, RefusesSidesWhoseProductOverflows) {
  EXPECT_EQ(refusal(R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4],
                        "data_offsets": [0, 0]}})",
                    0),
            "x: a.shape[0]: impossible tensor side 4611686018427387904");
}

TEST(SafetensorsHeaderBytes, BelievesNoLengthThatTheFileCannotHold) {
  const std::string first("\x10\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(safetensors_header_bytes(first, 24, "x"), 16U);
  EXPECT_THROW(safetensors_header_bytes(first, 23, "x"), InvalidInput);
  EXPECT_THROW(safetensors_header_bytes(first.substr(0, 7), 7, "x"), InvalidInput);
  EXPECT_THROW(safetensors_header_bytes(std::string(8, '\xff'), 1'000'000'000, "x"), InvalidInput);
}

}  // namespace
}  // namespace entrain
