#include "entrain/core/dataset/measure.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/dataset/video_file.h"

namespace entrain {
namespace {

VideoSize measure_frames(const std::vector<MediaBytes>& frames, double fps, bool verify) {
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

}  // namespace

ImageSize measure_image(const MediaBytes& image, bool verify) {
  if (image.known && !verify) {
    return *image.known;
  }
  const ImageSize size = image_size(image.bytes, image.size, image.where);
  return verify ? decode_image(image.content(), image.where).size : size;
}

std::vector<VideoSize> measure_videos(const FoundSample& sample, bool verify) {
  const std::vector<FoundVideo>& videos = sample.videos;
  const bool need_fps = std::any_of(
      videos.begin(), videos.end(), [](const FoundVideo& video) { return !video.file; });
  std::vector<double> fps;
  if (need_fps) {
    fps = frames_per_second(sample.text.content(), videos.size(), sample.text.where);
  }
  std::vector<VideoSize> result;
  for (std::size_t i = 0; i < videos.size(); ++i) {
    const std::optional<MediaBytes>& file = videos[i].file;
    result.push_back(file ? measure_video_file(video_file_of(*file), verify, file->where)
                          : measure_frames(videos[i].frames, fps[i], verify));
  }
  return result;
}

double measure_clip(const MediaBytes& clip, bool verify) {
  const double seconds = audio_info(clip.bytes, clip.size, clip.where).seconds();
  return verify ? decode_audio(clip.content(), clip.where).info.seconds() : seconds;
}

}  // namespace entrain
