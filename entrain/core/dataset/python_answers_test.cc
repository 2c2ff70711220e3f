#include "entrain/core/dataset/python_answers.h"

#include <array>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

// A process that says `answers` and ends.
PythonProcess process_saying(std::string_view answers) {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  EXPECT_EQ(::write(ends[1], answers.data(), answers.size()), std::ssize(answers));
  close(ends[1]);
  return {ends[0], "answers"};
}

template <class Read>
std::string refusal(std::string_view answers, const Read& read) {
  PythonProcess process = process_saying(answers);
  return error_of<SystemFailure>([&] { read(process, "it"); });
}

TEST(PythonAnswers, AreReadWithTheBytesBehindThem) {
  PythonProcess process = process_saying(
      "{\"rows\": 3, \"largest\": 0}\n"
      "{\"json\": \"{}\", \"media\": {\"images\": [2, \"a.png\"], \"audio\": [1]}}\nABC"
      "{\"frames\": 10, \"fps\": 4, \"width\": 2, \"height\": 1}\n"
      "{\"width\": 1, \"height\": 2}\nabcdef");
  const TableSize table = read_table_size(process, "it");
  EXPECT_EQ(table.rows, 3);
  EXPECT_EQ(table.largest_bytes, 0);
  const TableRow row = read_table_row(process, "it");
  EXPECT_EQ(row.text, "{}");
  EXPECT_EQ(row.media.images.at(0).bytes, "AB");
  EXPECT_EQ(row.media.images.at(1).path, "a.png");
  EXPECT_EQ(row.media.audio.at(0).bytes, "C");
  EXPECT_EQ(read_video_size(process, "it"), (VideoSize{2.5, 10, ImageSize{2, 1}}));
  const DecodedImage frame = read_video_frame(process, "it");
  EXPECT_EQ(frame.size, (ImageSize{1, 2}));
  EXPECT_EQ(frame.rgb, (std::vector<std::uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
}

TEST(PythonAnswers, OfAnotherFormAreRefused) {
  for (const char* answer : {"17\n",
                             "{}\n",
                             "{\"rows\": -1, \"largest\": 0}\n",
                             "{\"rows\": 18446744073709551615, \"largest\": 0}\n",
                             "{\"rows\": \"3\", \"largest\": 0}\n",
                             "{\"failure\": 1}\n",
                             "{\"rows\": 3"}) {
    EXPECT_NE(refusal(answer, read_table_size).find("it: "), std::string::npos) << answer;
  }
  for (const char* answer : {"{\"json\": 1, \"media\": {}}\n",
                             "{\"json\": \"\", \"media\": []}\n",
                             "{\"json\": \"\", \"media\": {\"images\": 1}}\n",
                             "{\"json\": \"\", \"media\": {\"images\": [-1]}}\n",
                             "{\"json\": \"\", \"media\": {\"images\": [null]}}\n",
                             "{\"json\": \"\", \"media\": {\"images\": [9]}}\nABC"}) {
    EXPECT_NE(refusal(answer, read_table_row).find("it: "), std::string::npos) << answer;
  }
  for (const char* answer :
       {"{\"frames\": 0, \"fps\": 4, \"width\": 2, \"height\": 1}\n",
        "{\"frames\": 1, \"fps\": 0, \"width\": 2, \"height\": 1}\n",
        "{\"frames\": 1, \"fps\": null, \"width\": 2, \"height\": 1}\n",
        "{\"frames\": 1, \"fps\": 4, \"width\": 4294967298, \"height\": 1}\n"}) {
    EXPECT_NE(refusal(answer, read_video_size).find("it: "), std::string::npos) << answer;
  }
  for (const char* answer : {"{\"width\": 0, \"height\": 1}\n",
                             "{\"width\": 2.5, \"height\": 1}\n",
                             "{\"width\": 2147483647, \"height\": 2147483647}\n",
                             "{\"width\": 1, \"height\": 2}\nabc"}) {
    EXPECT_NE(refusal(answer, read_video_frame).find("it: "), std::string::npos) << answer;
  }
}

TEST(PythonAnswers, ReportDamageWhateverItsTextIs) {
  PythonProcess process = process_saying("{\"error\": \"it is cut\"}\n{\"error\": [1]}\n");
  EXPECT_EQ(error_of<InvalidInput>([&] { read_video_frame(process, "it"); }), "it: it is cut");
  EXPECT_EQ(error_of<InvalidInput>([&] { read_video_frame(process, "it"); }), "it: [1]");
}

}  // namespace
}  // namespace entrain
