#include "entrain/engine/models/weights.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

class WeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("entrain-weights-") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path file() const { return folder_ / "weights.safetensors"; }

  void write_raw(const std::string& header, const std::string& data) const {
    const std::uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), 8);
    write_file(file(), bytes + header + data);
  }

  // The message of the InvalidInput that reading throws, or "" when it does not.
  [[nodiscard]] std::string refusal() const {
    try {
      read_weights(file());
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
};

std::vector<NamedParameter> sample_parameters() {
  return {{"first.weight", at::arange(6, at::kFloat).view({2, 3})},
          {"second.bias", at::tensor({1.5, -2.0}).to(at::kBFloat16)},
          {"empty", at::empty({0, 4}, at::kDouble)},
          {"third", at::tensor({std::int64_t{7}}, at::kLong).squeeze(0)}};
}

TEST_F(WeightsTest, ReadsBackWhatWasWritten) {
  const std::vector<NamedParameter> written = sample_parameters();
  write_weights(file(), written, {{"step", "12"}});
  const WeightFile read = read_weights(file());
  ASSERT_EQ(read.tensors.size(), written.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    EXPECT_EQ(read.tensors[i].name, written[i].name);
    EXPECT_EQ(read.tensors[i].tensor.scalar_type(), written[i].tensor.scalar_type());
    EXPECT_TRUE(at::equal(read.tensors[i].tensor, written[i].tensor)) << written[i].name;
  }
  EXPECT_EQ(read.metadata.at("step"), "12");
}

// The layout by hand, so that any other reader of the format understands the file.
TEST_F(WeightsTest, WritesTheFormatToTheByte) {
  const at::Tensor transposed = at::arange(6, at::kFloat).view({2, 3}).t();  // not contiguous
  write_weights(file(), {{"a", transposed}, {"b", at::tensor({9.0F})}});
  const std::string bytes = read_file(file());
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length * 256 + static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(length % 8, 0U);
  const Json header = parse_json(bytes.substr(8, length), "header");
  EXPECT_EQ(header,
            parse_json(R"({"a": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]},
                                   "b": {"dtype": "F32", "shape": [1], "data_offsets": [24, 28]}})",
                       "expected"));
  ASSERT_EQ(bytes.size(), 8 + length + 28);
  float values[7];
  std::memcpy(values, bytes.data() + 8 + length, sizeof(values));
  const float expected[7] = {0, 3, 1, 4, 2, 5, 9};
  EXPECT_EQ(std::memcmp(values, expected, sizeof(values)), 0);
}

TEST_F(WeightsTest, ReadsOnlyWhatIsWanted) {
  write_weights(file(), sample_parameters(), {{"step", "12"}});
  const WeightFile read =
      read_weights(file(), [](const std::string& name) { return name == "second.bias"; });
  ASSERT_EQ(read.tensors.size(), 1U);
  EXPECT_TRUE(at::equal(read.tensors[0].tensor, sample_parameters()[1].tensor));
  EXPECT_EQ(read.metadata.at("step"), "12");
}

TEST_F(WeightsTest, HeaderSaysWhatTheTensorsAre) {
  write_weights(file(), sample_parameters());
  const std::vector<TensorInfo> header = read_weight_header(file());
  ASSERT_EQ(header.size(), 4U);
  EXPECT_EQ(header[1], (TensorInfo{"second.bias", "BF16", {2}}));
  for (std::size_t i = 0; i < header.size(); ++i) {
    EXPECT_EQ(header[i], info_of(sample_parameters()[i]));
  }
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 1);
  EXPECT_THROW(read_weight_header(file()), InvalidInput);
}

TEST_F(WeightsTest, LoadsByNameIntoGivenParameters) {
  write_weights(file(), sample_parameters());
  const at::Tensor target = at::zeros({2, 3}, at::kDouble).set_requires_grad(true);
  load_weights(file(), {{"first.weight", target}});
  EXPECT_TRUE(at::equal(target.detach(), at::arange(6, at::kDouble).view({2, 3})));
  EXPECT_TRUE(target.requires_grad());
  const at::Tensor untouched = at::zeros({2, 3});
  EXPECT_THROW(load_weights(file(), {{"first.weight", untouched}, {"fourth", at::zeros({1})}}),
               InvalidInput);
  EXPECT_THROW(load_weights(file(), {{"first.weight", untouched}, {"third", at::zeros({2})}}),
               InvalidInput);
  EXPECT_EQ(untouched.abs().sum().item<float>(), 0.0F);
}

TEST_F(WeightsTest, RefusesWhatIsNoNumberByTheTensorsName) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const at::Tensor wrong = at::zeros({2, 3});
    wrong[1][2] = value;
    write_weights(file(), {{"first", at::ones({2})}, {"second.weight", wrong}});
    const at::Tensor untouched = at::zeros({2});
    const at::Tensor second = at::zeros({2, 3});
    const std::string message = oracle::error_of<InvalidInput>([&] {
      load_weights(file(), {{"first", untouched}, {"second.weight", second}});
    });
    EXPECT_NE(message.find("'second.weight': 1 of 6 values are NaN or infinite"), std::string::npos)
        << message;
    EXPECT_NE(message.find(file().string()), std::string::npos) << message;
    EXPECT_EQ(untouched.sum().item<float>(), 0.0F);
    EXPECT_NO_THROW(load_weights(file(), {{"first", untouched}})) << "others do not matter";
  }
}

TEST_F(WeightsTest, RefusesNamesGivenTwice) {
  EXPECT_THROW(write_weights(file(), {{"a", at::zeros({1})}, {"a", at::zeros({1})}}), InvalidInput);
  EXPECT_THROW(write_weights(file(), {{"a", at::zeros({1}, at::kComplexFloat)}}), InvalidInput);
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(WeightsTest, RefusesHostileHeaders) {
  const std::string four(4, '\0');
  const std::string eight(8, '\0');
  struct Refused {
    std::string header;
    std::string data;
    std::string message;
  };
  const std::vector<Refused> cases = {
      {"[]", "", "must be a JSON object"},
      {"{", "", "not valid JSON"},
      {R"({"a": 3})", "", "a"},
      {R"({"a": {"dtype": "F32", "shape": [1]}})", four, "data_offsets"},
      {R"({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}})", four, "F31"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", four, "within"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", four, "8 bytes"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}})", eight, "[8, 4]"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", four, "1 numbers"},
      {R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", four, "-1"},
      {R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}})",
       "",
       "impossible"},
      {R"({"a": {"dtype": "F32", "shape": [0, 4611686018427387904, 8], "data_offsets": [0, 0]}})",
       "",
       "impossible"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
           "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
       four,
       "must start at 4"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})", eight, "start at 0"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", eight, "end at byte 4"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 1}})", four, "x"},
      {R"({"__metadata__": {"k": 1}})", "", "__metadata__"},
  };
  for (const Refused& hostile : cases) {
    write_raw(hostile.header, hostile.data);
    const std::string message = refusal();
    EXPECT_NE(message.find(hostile.message), std::string::npos)
        << hostile.header << "\ngave: " << message;
  }
}

TEST_F(WeightsTest, RefusesImpossibleHeaderLengths) {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{1} << 40U, std::numeric_limits<std::uint64_t>::max()}) {
    write_file(file(), std::string(reinterpret_cast<const char*>(&length), 8) + "{}");
    EXPECT_NE(refusal().find("no safetensors file"), std::string::npos) << length;
  }
  write_file(file(), "short");
  EXPECT_NE(refusal().find("too short"), std::string::npos);
  std::filesystem::remove(file());
  EXPECT_NE(refusal().find("no such"), std::string::npos);
}

}  // namespace
}  // namespace entrain::engine
