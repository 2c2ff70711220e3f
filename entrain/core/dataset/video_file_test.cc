// The protocol alone, against a process that answers as videos.py does; what PyAV makes of real
// files is tested by tests/end_to_end/videos_test.py.
#include "entrain/core/dataset/video_file.h"

#include <array>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/python_process.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::TemporaryFolder;

// A video of 10 frames of 2 × 1 pixels, whose first value is how often a video was opened, the
// others the frame's number. "bad" is damaged, "end" ends the process.
constexpr const char* kVideos = R"(
import json, sys
source, sink, opened = sys.stdin.buffer, sys.stdout.buffer, 0
def say(**answer):
    sink.write(json.dumps(answer).encode() + b"\n")
for line in source:
    request = json.loads(line)
    if "open" in request:
        name = request["open"]
        content = name if isinstance(name, str) else source.read(name).decode()
        opened += 1
        if content.endswith("end"):
            sys.exit(3)
        say(**({"error": "it is cut"} if content.endswith("bad") else {}))
    elif "measure" in request:
        say(frames=10, fps=4.0, width=2 + request["measure"], height=1)
    else:
        for frame in request["frames"]:
            if frame >= request["of"]:
                say(error="frame %d cannot be decoded" % frame)
                break
            say(width=2, height=1)
            sink.write(bytes([opened] + [frame] * 5))
    sink.flush()
)";

class VideoFiles : public testing::Test {
 protected:
  VideoFiles() : before_(program()) {
    const std::filesystem::path package = folder_.path() / "entrain";
    std::filesystem::create_directories(package);
    folder_.write("entrain/__init__.py", "");
    folder_.write("entrain/videos.py", kVideos);
    set_python_program({"python3", folder_.path()});
  }
  ~VideoFiles() override { set_python_program(before_); }

  static PythonProgram program() {
    try {
      return find_python_program();
    } catch (const SystemFailure&) {
      return {};  // of a test there is none
    }
  }

  TemporaryFolder folder_;
  PythonProgram before_;
};

TEST_F(VideoFiles, AreMeasuredAndDecodedByAProcess) {
  const VideoFile in_memory{"", "bytes\nof a video"};
  const VideoFile on_disk{"/videos/a.mp4", ""};
  EXPECT_EQ(measure_video_file(in_memory, false, "x"), (VideoSize{2.5, 10, ImageSize{2, 1}}));
  EXPECT_EQ(measure_video_file(on_disk, true, "x"), (VideoSize{2.5, 10, ImageSize{3, 1}}));
  VideoDecoder one(in_memory, 10, "one");
  VideoDecoder two(on_disk, 10, "two");
  const auto read = [](VideoDecoder& decoder, std::int64_t first, std::int64_t second) {
    const std::vector<DecodedImage> frames = decoder.frames(std::array{first, second});
    EXPECT_EQ(frames.at(1).size, (ImageSize{2, 1}));
    EXPECT_EQ(frames.at(1).rgb.at(5), second);
    EXPECT_EQ(frames.at(0).rgb.at(5), first);
    return static_cast<int>(frames.at(0).rgb.at(0));  // how many were opened
  };
  const int opened = read(one, 3, 4);
  EXPECT_EQ(read(one, 4, 9), opened);
  EXPECT_EQ(read(two, 0, 0), opened + 1);
  EXPECT_EQ(read(two, 1, 2), opened + 1);
  EXPECT_EQ(read(one, 5, 6), opened + 2);
}

TEST_F(VideoFiles, ReadOnAfterADamagedOneAndAfterTheProcessEnded) {
  const VideoFile fine{"/a.mp4", ""};
  EXPECT_EQ(error_of<InvalidInput>([] {
              measure_video_file({"", "bad"}, false, "sample 'a'");
            }),
            "sample 'a': it is cut");
  VideoDecoder decoder(fine, 10, "sample 'b'");
  EXPECT_EQ(error_of<InvalidInput>([&] {
              decoder.frames(std::array<std::int64_t, 2>{9, 10});
            }),
            "sample 'b': frame 10 cannot be decoded");
  EXPECT_EQ(decoder.frames(std::array<std::int64_t, 1>{9}).size(), 1U);
  EXPECT_NE(error_of<SystemFailure>([] {
              measure_video_file({"/end", ""}, false, "sample 'c'");
            }).find("sample 'c': the process that decodes video ended with exit code 3"),
            std::string::npos);
  const std::vector<DecodedImage> frames = decoder.frames(std::array<std::int64_t, 1>{9});
  EXPECT_EQ(frames.at(0).rgb, (std::vector<std::uint8_t>{1, 9, 9, 9, 9, 9}));
}

}  // namespace
}  // namespace entrain
