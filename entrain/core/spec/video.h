// Frames of videos as vision encoders read them: which, of what size, at what time.
//
// Read first: video_work(). Frames that are not read are not decoded.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// ⌈value · rate⌉. Sizes are decimal numbers (1.1 s) that binary doubles miss by a hair, so a
// product that close to a whole number is that number: 1.1 s are 110 frames of 10 ms, not 111.
std::int64_t ceil_of_product(double value, double rate);

// What an encoder reads of a video. Two frames make a temporal patch, which is a segment; of an odd
// number the last one counts twice.
struct VideoWork {
  std::int64_t frames = 0;  // that are read, >= 1
  ImageSize size;           // in pixels, after resizing
  // M-RoPE: positions in time from one temporal patch to the next. 0: each is a grid of its own.
  float time_step = 0.0F;

  [[nodiscard]] std::int64_t patches() const { return (frames + 1) / 2; }
  bool operator==(const VideoWork&) const = default;
};

// Frames: by encoder.video.sampling, from the video's length and number of frames. Without a number
// any may be read. Size: smart_resize() within the video's own limits of pixels; with shared_pixels
// these are of all frames, and a frame narrower than a block is enlarged first.
//
// Requires  0 < seconds <= 1e7.
// Throws    InvalidInput: no number of frames where all are read, more than 2^30 frames, whatever
//           smart_resize() refuses.
// Source    the video processors of Qwen2-VL and Qwen3-VL in transformers.
VideoWork video_work(const EncoderSpec& encoder, const VideoSize& video);

// Whether training can read videos for a vision encoder: only lengths are known of kRate.
inline bool reads_videos(const EncoderSpec& encoder) {
  return encoder.video.sampling != VideoSpec::Sampling::kRate;
}

// Which frames these are, from 0, rising.
//
// Requires  reads_videos(), and a number of frames.
std::vector<std::int64_t> frame_indices(const EncoderSpec& encoder, const VideoSize& video);

}  // namespace entrain
