#include "entrain/core/planner/batch_sum.h"

namespace entrain {

SampleWork batch_sum(std::span<const SampleWork> batch) {
  SampleWork sum;
  for (const SampleWork& sample : batch) {
    sum.segments.resize(sample.segments.size(), {SegmentWork{}});
    for (std::size_t encoder = 0; encoder < sample.segments.size(); ++encoder) {
      SegmentWork& of_encoder = sum.segments[encoder].front();
      for (const SegmentWork& segment : sample.segments[encoder]) {
        of_encoder.tokens += segment.tokens;
        of_encoder.attention_pairs += segment.attention_pairs;
        of_encoder.window_pairs += segment.window_pairs;
      }
    }
    sum.llm_tokens += sample.llm_tokens;
    sum.llm_attention_pairs += sample.llm_attention_pairs;
    sum.llm_window_pairs += sample.llm_window_pairs;
    sum.target_tokens += sample.target_tokens;
  }
  return sum;
}

}  // namespace entrain
