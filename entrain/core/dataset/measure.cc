#include "entrain/core/dataset/measure.h"

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"

namespace entrain {
namespace {

constexpr std::int64_t kHeaderPrefix = 1 << 16;  // bytes that nearly always hold a header

// What `read_header` finds in the first bytes of a medium, or in all of it.
template <class ReadHeader>
auto measure(const MediaBytes& medium, const ReadHeader& read_header) {
  if (medium.size > kHeaderPrefix) {
    try {
      return read_header(std::string(medium.bytes(0, kHeaderPrefix)));
    } catch (const InvalidInput&) {
      // Large metadata before the header, or damage: read the whole medium.
    }
  }
  return read_header(medium.content());
}

}  // namespace

ImageSize measure_image(const MediaBytes& image, bool verify) {
  const ImageSize size =
      measure(image, [&](const std::string& bytes) { return image_size(bytes, image.where); });
  check_image_end(image.size, image.bytes, image.where);
  return verify ? decode_image(image.content(), image.where).size : size;
}

VideoSize measure_video(const std::vector<MediaBytes>& frames, double fps, bool verify) {
  VideoSize video;
  video.frames = std::ssize(frames);
  video.seconds = static_cast<double>(frames.size()) / fps;
  for (const MediaBytes& frame : frames) {
    const ImageSize size = measure_image(frame, verify);
    if (video.size.value_or(size) != size) {
      throw InvalidInput(fmt::format("{}: a frame of {}x{} pixels, those before it have {}x{}",
                                     frame.where,
                                     size.width,
                                     size.height,
                                     video.size->width,
                                     video.size->height));
    }
    video.size = size;
  }
  return video;
}

double measure_clip(const MediaBytes& clip, bool verify) {
  const double seconds = audio_info(clip.bytes, clip.size, clip.where).seconds();
  return verify ? decode_audio(clip.content(), clip.where).info.seconds() : seconds;
}

}  // namespace entrain
