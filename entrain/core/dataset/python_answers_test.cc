#include "entrain/core/dataset/python_answers.h"

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

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
      "{\"rows\": 3, \"largest\": 0, \"unread\": [\"b\"]}\n"
      "{\"rows\": 2, \"bytes\": 3}\n"
      "{\"json\": \"{}\", \"media\": {\"images\": [[0, 2], \"a.png\", [4, 5, true]]}}\n"
      "{\"error\": \"torn\"}\nABC"
      "{\"rows\": 2, \"error\": \"damaged\"}\n"
      "{\"frames\": 10, \"fps\": 4, \"width\": 2, \"height\": 1}\n"
      "{\"width\": 1, \"height\": 2}\nabcdef");
  const TableSize table = read_table_size(process, "it");
  EXPECT_EQ(table.rows, 3);
  EXPECT_EQ(table.largest_bytes, 0);
  EXPECT_EQ(table.unread, std::vector<std::string>{"b"});
  const TableRows rows = read_table_rows(process, /*most=*/3, /*file_bytes=*/9, "it");
  ASSERT_EQ(rows.rows.size(), 2U);
  EXPECT_EQ(rows.bytes, "ABC");
  EXPECT_EQ(rows.rows[0].text, "{}");
  const std::vector<TableMedium>& images = rows.rows[0].media[0];
  ASSERT_EQ(images.size(), 3U);
  EXPECT_EQ(std::tuple(images[0].begin, images[0].size, images[0].in_file),
            std::tuple(0, 2, false));
  EXPECT_EQ(images[1].path, "a.png");
  EXPECT_EQ(std::tuple(images[2].begin, images[2].size, images[2].in_file), std::tuple(4, 5, true));
  EXPECT_EQ(rows.rows[1].error, "torn");
  const TableRows damaged = read_table_rows(process, /*most=*/3, /*file_bytes=*/9, "it");
  ASSERT_EQ(damaged.rows.size(), 2U);
  EXPECT_EQ(damaged.rows[1].error, "damaged");
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
                             "{\"rows\": 3, \"largest\": 0, \"unread\": [1]}\n",
                             "{\"failure\": 1}\n",
                             "{\"rows\": 3"}) {
    EXPECT_NE(refusal(answer, read_table_size).find("it: "), std::string::npos) << answer;
  }
  const auto read_rows = [](PythonProcess& process, const std::string& where) {
    return read_table_rows(process, /*most=*/3, /*file_bytes=*/9, where);
  };
  for (const char* head : {"{\"rows\": 0, \"bytes\": 0}\n",
                           "{\"rows\": 4, \"bytes\": 0}\n",
                           "{\"rows\": 1, \"bytes\": -1}\n",
                           "{\"rows\": 1, \"error\": 5}\n",
                           "{\"rows\": 1}\n"}) {
    EXPECT_NE(refusal(head, read_rows).find("it: "), std::string::npos) << head;
  }
  for (const char* row : {"{\"json\": 1, \"media\": {}}\n",
                          "{\"json\": \"\", \"media\": []}\n",
                          "{\"json\": \"\", \"media\": {\"images\": 1}}\n",
                          "{\"json\": \"\", \"media\": {\"images\": [-1]}}\n",
                          "{\"json\": \"\", \"media\": {\"images\": [[0]]}}\n",
                          "{\"json\": \"\", \"media\": {\"images\": [[1, 3]]}}\nABC",
                          "{\"json\": \"\", \"media\": {\"images\": [[5, 5, true]]}}\nABC",
                          "{\"error\": null}\nABC",
                          "{\"json\": \"\", \"media\": {\"images\": [[0, 3]]}}\nAB"}) {
    const std::string answer = concat("{\"rows\": 1, \"bytes\": 3}\n", row);
    EXPECT_NE(refusal(answer, read_rows).find("it: "), std::string::npos) << answer;
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
