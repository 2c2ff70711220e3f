// From sizes to lengths: how many tokens and attention pairs a sample brings to each module.
//
// Read first: sample_work(). The rules are those of the original processors, to the token; the
// engine checks its real tensors against them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// Height and width in pixels after Qwen's smart_resize: both sides rounded (halves to even) to
// multiples of `factor`, then scaled so that min_pixels <= height * width <= max_pixels.
//
// Throws  InvalidInput when a side is below 1 or the aspect ratio exceeds 200.
// Source  Qwen2-VL image processor; golden values in workload_test.cc.
ImageSize smart_resize(ImageSize image,
                       int factor,
                       std::int64_t min_pixels,
                       std::int64_t max_pixels);

// One segment: an image, a temporal patch of a video, an audio window.
struct SegmentWork {
  std::int64_t tokens = 0;           // in the encoder, before merging
  std::int64_t attention_pairs = 0;  // tokens²
  std::int64_t llm_tokens = 0;       // features it puts into the LLM's sequence
  bool operator==(const SegmentWork&) const = default;
};

struct SampleWork {
  std::vector<std::vector<SegmentWork>> segments;  // [encoder][segment]
  std::int64_t llm_tokens = 0;                     // text and features
  std::int64_t llm_attention_pairs = 0;            // llm_tokens² / 2, rounded down (causal)
  std::int64_t target_tokens = 0;                  // tokens with loss
  bool operator==(const SampleWork&) const = default;
};

// Uses exact text tokens where present, estimates otherwise. Modalities that the model has no
// encoder for are left out (their text remains). A vision encoder takes images first, then videos.
//
// Throws  InvalidInput naming the sample when a size is impossible.
SampleWork sample_work(const ModelSpec& model, const SampleSizes& sizes);

}  // namespace entrain
