#include "entrain/core/dataset/measure.h"

#include <algorithm>
#include <optional>
#include <utility>

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

bool same_videos(const SampleSizes& sample, const RawSample& raw, const std::string& where) {
  bool same = raw.videos.size() == sample.videos.size();
  for (std::size_t video = 0; same && video < raw.videos.size(); ++video) {
    const VideoSize& given = sample.videos[video];
    if (const std::optional<VideoFile>& file = raw.videos[video].file) {
      same = measure_video_file(*file, /*verify=*/true, where) == given;
      continue;
    }
    same = std::cmp_equal(raw.videos[video].frames.size(), given.frames.value_or(0));
    for (const std::string& frame : raw.videos[video].frames) {
      same &= decode_image(frame, where).size == given.size;
    }
  }
  return same;
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

void verify_sample(const SampleSizes& sample, const RawSample& raw, const std::string& file) {
  const std::string where = fmt::format("sample '{}' in '{}'", sample.id, file);
  std::vector<ImageSize> sizes;
  for (const std::string& image : raw.images) {
    sizes.push_back(decode_image(image, where).size);
  }
  std::vector<double> seconds;
  for (const std::string& clip : raw.audio) {
    seconds.push_back(decode_audio(clip, where).info.seconds());
  }
  if (sizes != sample.images || seconds != sample.audio_seconds ||
      !same_videos(sample, raw, where)) {
    throw InvalidInput(fmt::format(
        "{}: its images, videos or clips are not of the sizes that the index says", where));
  }
}

}  // namespace entrain
