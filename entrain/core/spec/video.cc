#include "entrain/core/spec/video.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/spec/vision_sizes.h"

namespace entrain {
namespace {

using Sampling = VideoSpec::Sampling;

constexpr std::int64_t kMostFrames = std::int64_t{1} << 30;
constexpr std::int64_t kPatchFrames = 2;

// Frames that a video's length asks for.
double wanted_frames(const EncoderSpec& encoder, const VideoSize& video) {
  return std::max<double>(video.seconds * encoder.frames_per_second, encoder.video.min_frames);
}

std::int64_t num_frames(const EncoderSpec& encoder, const VideoSize& video) {
  if (encoder.video.sampling == Sampling::kRate) {
    const std::int64_t frames = ceil_of_product(video.seconds, encoder.frames_per_second);
    if (frames > kMostFrames) {
      throw InvalidInput(
          fmt::format("a video of {} frames; at most {} allowed", frames, kMostFrames));
    }
    return frames;
  }
  if (encoder.video.sampling == Sampling::kAll && !video.frames) {
    throw InvalidInput("a video without a number of frames, of which all are read");
  }
  const std::int64_t frames = video.frames.value_or(kMostFrames);
  if (frames < kPatchFrames || frames > kMostFrames) {
    throw InvalidInput(fmt::format(
        "a video of {} frames; {} to {} are allowed", frames, kPatchFrames, kMostFrames));
  }
  if (encoder.video.sampling == Sampling::kAll) {
    return frames;
  }
  const std::int64_t most = std::min<std::int64_t>(encoder.video.max_frames, frames);
  const std::int64_t read =
      static_cast<std::int64_t>(std::min(wanted_frames(encoder, video), static_cast<double>(most)));
  const bool even = encoder.video.sampling == Sampling::kStride;
  return std::max(kPatchFrames, even ? read / kPatchFrames * kPatchFrames : read);
}

ImageSize shared_size(const EncoderSpec& encoder,
                      ImageSize frame,
                      std::int64_t frames,
                      std::int64_t min_pixels,
                      std::int64_t max_pixels) {
  const int factor = encoder.patch_size * encoder.merge_size;
  if (frame.width < factor || frame.height < factor) {
    const double scale = std::max(static_cast<double>(factor) / frame.height,
                                  static_cast<double>(factor) / frame.width);
    frame = {static_cast<int>(frame.width * scale), static_cast<int>(frame.height * scale)};
  }
  return smart_resize(frame, factor, min_pixels, max_pixels, frames);
}

ImageSize frame_size(const EncoderSpec& encoder, const VideoSize& video, std::int64_t frames) {
  const VideoSpec& limits = encoder.video;
  const ImageSize frame =
      video.size.value_or(ImageSize{encoder.default_frame_width, encoder.default_frame_height});
  if (has_one_size(encoder)) {
    return encoder_image_size(encoder, frame);
  }
  const std::int64_t least = limits.min_pixels > 0 ? limits.min_pixels : encoder.min_pixels;
  const std::int64_t most = limits.max_pixels > 0 ? limits.max_pixels : encoder.max_pixels;
  return limits.shared_pixels
             ? shared_size(encoder, frame, frames, least, most)
             : smart_resize(frame, encoder.patch_size * encoder.merge_size, least, most);
}

}  // namespace

std::int64_t ceil_of_product(double value, double rate) {
  const double product = value * rate;
  const double whole = std::nearbyint(product);
  const bool is_whole = std::abs(product - whole) <= 1e-12 * product;
  return static_cast<std::int64_t>(is_whole ? whole : std::ceil(product));
}

VideoWork video_work(const EncoderSpec& encoder, const VideoSize& video) {
  VideoWork work;
  work.frames = num_frames(encoder, video);
  work.size = frame_size(encoder, video, work.frames);
  if (encoder.video.tokens_per_second > 0) {
    // As the original computes it: the seconds of a temporal patch, and then in float32.
    const auto frames = static_cast<double>(video.frames.value_or(work.frames));
    const double rate = static_cast<double>(work.frames) / frames * (frames / video.seconds);
    work.time_step = static_cast<float>(encoder.video.tokens_per_second) *
                     static_cast<float>(kPatchFrames / rate);
  }
  return work;
}

std::vector<std::int64_t> frame_indices(const EncoderSpec& encoder, const VideoSize& video) {
  ENTRAIN_INVARIANT(reads_videos(encoder) && video.frames.has_value(),
                    "frames of a video of which only the length is known");
  const std::int64_t frames = *video.frames;
  const std::int64_t read = num_frames(encoder, video);
  const double spread = static_cast<double>(frames - 1) / static_cast<double>(read - 1);
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < read; ++i) {
    // nearbyint rounds halves to even, as numpy does.
    result.push_back(
        encoder.video.sampling == Sampling::kSpread
            ? static_cast<std::int64_t>(std::nearbyint(static_cast<double>(i) * spread))
            : i * frames / read);
  }
  return result;
}

}  // namespace entrain
