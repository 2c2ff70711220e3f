#include "entrain/core/dataset/measure.h"

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"

namespace entrain {
ImageSize measure_image(const MediaBytes& image, bool verify) {
  const ImageSize size = image_size(image.bytes, image.size, image.where);
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
