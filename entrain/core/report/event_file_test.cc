#include "entrain/core/report/event_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

namespace entrain {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

// Values of RFC 3720, B.4, and of the digits, which every table of checksums has.
TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  EXPECT_EQ(crc32c(""), 0U);
}

// Bytes that tensorboard 2.21's own protobuf classes and checksums give.
TEST(EventRecord, IsTensorBoardsToTheByte) {
  EXPECT_EQ(
      hex(event_record(scalars_event(1.5, 300, {{"loss", 2.5}, {"step_s", 0.125}}))),
      "2a00000000000000ae8d91f509000000000000f83f10ac022a1c0a0b0a046c6f737315000020400a0d0a0673"
      "7465705f73150000003efb8ef128");
  EXPECT_EQ(hex(event_record(version_event(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
}

class EventFiles : public ::testing::Test {
 protected:
  EventFiles()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
  }
  ~EventFiles() override { std::filesystem::remove_all(folder_); }

  // Records of all files, in the order of their names; versions are left out.
  [[nodiscard]] std::vector<std::string> events() const {
    std::vector<std::string> found;
    for (const std::filesystem::path& path : files()) {
      const std::string content = read_file(path);
      for (std::size_t at = 0; at < content.size();) {
        std::uint64_t length = 0;
        std::memcpy(&length, content.data() + at, sizeof length);
        const std::string event = content.substr(at + 12, length);
        EXPECT_EQ(content.substr(at, 16 + length), event_record(event));
        if (event.find("brain.Event") == std::string::npos) {
          found.push_back(event.substr(9));  // after the time
        }
        at += 16 + length;
      }
    }
    return found;
  }
  [[nodiscard]] static std::string expected(std::int64_t step, double loss) {
    return scalars_event(0, step, {{"loss", loss}}).substr(9);
  }
  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

TEST_F(EventFiles, AreReadableAfterEveryStep) {
  EventFolder file(folder(), 0);
  EXPECT_TRUE(events().empty());
  file.add(0, {{"loss", 3}});
  file.add(200, {{"loss", 2}});
  EXPECT_EQ(events(), (std::vector{expected(0, 3), expected(200, 2)}));
}

TEST_F(EventFiles, RepeatNoStepWhenARunContinues) {
  {
    EventFolder file(folder(), 0);
    for (int step = 0; step < 6; ++step) {
      file.add(step, {{"loss", step}});
    }
  }
  write_file(folder() / "events.out.tfevents.1.other", "of another program");
  EventFolder file(folder(), 4);
  file.add(4, {{"loss", 40}});
  EXPECT_EQ(files().size(), 3U);
  EXPECT_EQ(read_file(folder() / "events.out.tfevents.1.other"), "of another program");
  std::filesystem::remove(folder() / "events.out.tfevents.1.other");
  EXPECT_EQ(events(),
            (std::vector{
                expected(0, 0), expected(1, 1), expected(2, 2), expected(3, 3), expected(4, 40)}));
}

TEST_F(EventFiles, LoseACutRecordOnly) {
  { EventFolder(folder(), 0).add(0, {{"loss", 7}}); }
  const std::string whole = read_file(files().front());
  write_file(files().front(), whole + event_record(version_event(1)).substr(0, 20));
  const EventFolder file(folder(), 9);
  EXPECT_EQ(events(), std::vector{expected(0, 7)});
}

TEST_F(EventFiles, RefuseAPlaceThatIsNoFolder) {
  write_file(folder(), "a file");
  EXPECT_THROW(EventFolder(folder(), 0), SystemFailure);
}

}  // namespace
}  // namespace entrain
