// Reads one sample of an index and converts it to the model's input, checked against the lengths
// used for planning.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/sample_source.h"
#include "entrain/core/dataset/video_file.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/workload.h"

#include "entrain/engine/data/patches.h"
#include "entrain/engine/data/step_data.h"

namespace entrain::engine {

// Not thread-safe.
class SampleReader {
 public:
  // `blank`: every pixel white, every clip silent, lengths kept.
  // Requires  `index` and `model` outlive the reader.
  SampleReader(const Index& index, const ModelSpec& model, bool blank);

  // Throws  InvalidInput naming sample, shard and offset: anything unreadable or undecodable, a
  //         shard that differs from the indexed one, a video for an encoder that reads none;
  //         SystemFailure if reading fails; InternalError if the lengths differ from
  //         sample_work()'s.
  SegmentData segment(int sample, int module, int segment);
  SampleTokens text(int sample);

 private:
  const RawSample& raw(int sample);
  [[nodiscard]] const SampleSizes& sizes(int sample) const;
  void refuse_videos(int sample) const;
  [[nodiscard]] TokenizedSample cached_tokens(int sample, const SampleWork& work) const;
  [[nodiscard]] TokenizedSample byte_tokens(int sample,
                                            const SampleWork& work,
                                            const std::string& json) const;
  SegmentData image(int sample, SegmentPlace place, const EncoderSpec& encoder);
  SegmentData frames(int sample, SegmentPlace place, const EncoderSpec& encoder);
  std::vector<DecodedImage> decoded_frames(int sample,
                                           std::size_t number,
                                           std::span<const std::int64_t> indices);
  SegmentData sound(int sample, SegmentPlace place, const EncoderSpec& encoder);
  [[nodiscard]] std::string where(int sample) const;

  const Index& index_;
  const ModelSpec& model_;
  bool blank_;
  int held_ = -1;  // sample of raw_
  RawSample raw_;
  std::optional<VideoDecoder> video_;  // of raw_; number held_video_
  std::size_t held_video_ = 0;
  // Sample, image and encoder of image_, which serves all tiles.
  std::tuple<int, std::size_t, const EncoderSpec*> held_image_ = {-1, 0, nullptr};
  ResizedImage image_;
  std::pair<int, std::size_t> held_clip_ = {-1, 0};  // sample and clip of clip_
  std::vector<float> clip_;                          // at kMelSampleRate
};

}  // namespace entrain::engine
