#include "entrain/core/dataset/measure.h"

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"

namespace entrain {
namespace {

BytesAt bytes_of(TarReader& tar, const TarMember& member) {
  return
      [&](std::int64_t offset, std::int64_t size) { return tar.content_at(member, offset, size); };
}

}  // namespace

ImageSize measure_image(TarReader& tar, const TarMember& image, bool verify) {
  const std::string where = tar.where(image);
  const ImageSize size = image_size(bytes_of(tar, image), image.size, where);
  return verify ? decode_image(tar.content(image), where).size : size;
}

VideoSize measure_video(TarReader& tar,
                        const std::vector<TarMember>& frames,
                        double fps,
                        bool verify) {
  VideoSize video;
  video.frames = std::ssize(frames);
  video.seconds = static_cast<double>(frames.size()) / fps;
  for (const TarMember& frame : frames) {
    const ImageSize size = measure_image(tar, frame, verify);
    if (video.size.value_or(size) != size) {
      throw InvalidInput(fmt::format("{}: a frame of {}x{} pixels, those before it have {}x{}",
                                     tar.where(frame),
                                     size.width,
                                     size.height,
                                     video.size->width,
                                     video.size->height));
    }
    video.size = size;
  }
  return video;
}

double measure_clip(TarReader& tar, const TarMember& clip, bool verify) {
  const std::string where = tar.where(clip);
  const double seconds = audio_info(bytes_of(tar, clip), clip.size, where).seconds();
  return verify ? decode_audio(tar.content(clip), where).info.seconds() : seconds;
}

}  // namespace entrain
