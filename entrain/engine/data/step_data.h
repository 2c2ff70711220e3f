// The input data of a rank's step: patches of images, mel frames of audio, token ids of
// texts.
//
// Read first: StepData. Its reader decodes ahead in the order of use (read_ahead.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <ATen/ATen.h>

#include "entrain/core/dataset/text.h"

namespace entrain::engine {

struct SegmentData {
  // The input of the encoder's first layer, float32.
  // image: [rows·columns, patch_values()], in the order of SegmentGrid, of each of its tiles (the
  // canvas's whole image first); audio: [mel frames, bands]
  at::Tensor input;
  std::int64_t rows = 0;     // patches; 0 for audio
  std::int64_t columns = 0;  // patches; 0 for audio
  // Decoded for it: an image, two frames, or a clip. Of the tiles of an image and the windows of a
  // clip that are read one after another only the first has it.
  int decoded_images = 0;
  int decoded_clips = 0;
};

struct SampleTokens {
  TokenizedSample tokens;
  std::string kind;  // see StepData::kind()
};

// What a step's data took on one rank.
struct DataTimes {
  std::chrono::nanoseconds waited{0};    // consumers, for pieces that were not decoded yet
  std::chrono::nanoseconds decoding{0};  // of all threads here, for pieces of this step
  std::int64_t pieces = 0;               // segments and texts of the step
  std::int64_t fed = 0;                  // of these, decoded by a feed
  std::int64_t shared = 0;               // of these, by another rank of the lane
  std::int64_t images = 0;               // decoded, frames of videos included
  std::int64_t clips = 0;
  std::int64_t patches = 0;  // made of images and frames

  void count(const SegmentData& segment) {
    images += segment.decoded_images;
    clips += segment.decoded_clips;
    patches += segment.rows > 0 ? segment.input.size(0) : 0;
  }
};

// One step's data on one rank. Samples are indices into the step's global batch.
class StepData {
 public:
  virtual ~StepData() = default;
  // Blocks until decoded. Each segment is requested once. Its tensor may be another rank's too, so
  // it is not written to.
  // Throws  InvalidInput or SystemFailure naming sample and shard.
  virtual SegmentData segment(int module, int sample, int segment) = 0;
  virtual const TokenizedSample& text(int sample) = 0;
  // Blocks until every piece of the step has been decoded once. Returns the problem of the first
  // that cannot be decoded, else nothing. Only if the reader was configured to check steps.
  virtual std::optional<std::string> problem() { return {}; }
  // Up to now.
  [[nodiscard]] virtual DataTimes times() { return {}; }
  // The sample's "kind", else its "source", from its JSON member; for reports. Empty if it has
  // neither.
  virtual std::string kind(int sample) {
    (void)sample;
    return {};
  }
};

}  // namespace entrain::engine
