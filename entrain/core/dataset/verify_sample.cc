#include "entrain/core/dataset/verify_sample.h"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"

namespace entrain {
namespace {

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
