// Prints what training decodes of every sample of an index, for tests and benchmarks that compare
// formats of data.
//
// Usage: entrain_media INDEX.csv
// A line a sample, in the index's order: its media with spaces between them. An image is
// WIDTHxHEIGHT:CHECKSUM of its RGB, a video its frames with + between them, a clip
// RATE/FRAMES:CHECKSUM of its float32 samples. CHECKSUM is CRC-32 in hexadecimal digits, as
// Python's zlib has it.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include "entrain/core/base/python_process.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/sample_source.h"
#include "entrain/core/dataset/video_file.h"

namespace entrain {
namespace {

template <class Value>
std::string checksum(const std::vector<Value>& values) {
  const auto* bytes = reinterpret_cast<const Bytef*>(values.data());
  return fmt::format("{:08x}", ::crc32_z(0, bytes, values.size() * sizeof(Value)));
}

std::string line_of(const DecodedImage& image) {
  return fmt::format("{}x{}:{}", image.size.width, image.size.height, checksum(image.rgb));
}

std::string line_of(const RawVideo& video, const VideoSize& size, const std::string& where) {
  std::string line;
  const auto add = [&](const DecodedImage& frame) {
    line += (line.empty() ? "" : "+") + line_of(frame);
  };
  for (const std::string& frame : video.frames) {
    add(decode_image(frame, where));
  }
  if (video.file) {
    VideoDecoder decoder(*video.file, size.frames.value(), where);
    for (std::int64_t i = 0; i < *size.frames; ++i) {
      add(decoder.frames(std::vector{i}).at(0));
    }
  }
  return line;
}

std::string line_of(const DecodedAudio& clip) {
  return fmt::format("{}/{}:{}", clip.info.sample_rate, clip.info.frames, checksum(clip.samples));
}

std::vector<std::string> media_of(const Index& index, const SampleSizes& sample) {
  const RawSample raw = read_sample(located(index, sample.location.value()), sample.id);
  std::vector<std::string> media;
  for (const std::string& image : raw.images) {
    media.push_back(line_of(decode_image(image, sample.id)));
  }
  for (std::size_t i = 0; i < raw.videos.size(); ++i) {
    media.push_back(line_of(raw.videos[i], sample.videos.at(i), sample.id));
  }
  for (const std::string& clip : raw.audio) {
    media.push_back(line_of(decode_audio(clip, sample.id)));
  }
  return media;
}

int run(const std::filesystem::path& path) {
  // The package is not beside this program. It reads tables and files of video.
  const char* python = std::getenv("ENTRAIN_PYTHON");
  set_python_program({python != nullptr ? python : ENTRAIN_TEST_PYTHON, ENTRAIN_PACKAGES});
  const Index index = read_index(path);
  for (const SampleSizes& sample : index.samples) {
    std::cout << fmt::format("{}\n", fmt::join(media_of(index, sample), " "));
  }
  return 0;
}

}  // namespace
}  // namespace entrain

int main(int argc, char** argv) {
  try {
    if (argc != 2) {
      std::cerr << "usage: entrain_media INDEX.csv\n";
      return 2;
    }
    return entrain::run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "entrain_media: " << error.what() << "\n";
    return 1;
  }
}
