// Answers of the processes that read tables and video. The first byte says which are expected.
#include <array>

#include <sys/socket.h>

#include "entrain/core/dataset/python_answers.h"

#include "tests/fuzz/fuzz.h"

namespace entrain::fuzz {
namespace {

PythonProcess process_saying(std::string_view answers) {
  std::array<int, 2> ends{};
  expect(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0 &&
             ::send(ends[1], answers.data(), answers.size(), 0) == std::ssize(answers),
         "a socket that takes an input");
  ::close(ends[1]);
  return {ends[0], "answers"};
}

void read_table(PythonProcess& process) {
  expect(read_table_size(process, "table").rows >= 0, "a table has rows");
  while (true) {
    read_table_rows(process, /*most=*/100, /*file_bytes=*/50, "rows");
  }
}

void read_video(PythonProcess& process) {
  const VideoSize video = read_video_size(process, "video");
  expect(video.seconds > 0 && video.frames >= 1, "a video has a length");
  while (true) {
    const DecodedImage frame = read_video_frame(process, "frame");
    expect(std::ssize(frame.rgb) == std::int64_t{3} * frame.size.width * frame.size.height,
           "three bytes a pixel");
  }
}

}  // namespace
}  // namespace entrain::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string_view bytes = fuzz::text_of(data, size);
  if (bytes.empty()) {
    return 0;
  }
  PythonProcess process = fuzz::process_saying(bytes.substr(1));
  fuzz::expect_result_or_refusal(
      [&] { bytes[0] == 't' ? fuzz::read_table(process) : fuzz::read_video(process); });
  return 0;
}
