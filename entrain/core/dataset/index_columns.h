// Names and order of the columns that an index is written with; index.h says what they hold.
#pragma once

#include <array>
#include <cstddef>

namespace entrain {

enum Column : std::size_t {
  kSampleId,
  kNumImages,
  kImageSizes,
  kAudioSeconds,
  kVideoSeconds,
  kVideoFrames,
  kVideoSize,
  kPromptChars,
  kResponseChars,
  kTextChars,
  kPromptEstimate,
  kResponseEstimate,
  kTextEstimate,
  kPromptTokens,
  kResponseTokens,
  kTextDigest,
  kShard,
  kOffset,
  kBytes,
  kMedia,
  kColumnsOfFile,
  kNumColumns
};

inline constexpr std::array<const char*, kNumColumns> kColumnNames = {"sample_id",
                                                                      "n_images",
                                                                      "image_sizes",
                                                                      "audio_seconds",
                                                                      "video_seconds",
                                                                      "video_frames",
                                                                      "video_size",
                                                                      "prompt_chars",
                                                                      "response_chars",
                                                                      "text_chars",
                                                                      "prompt_tokens_estimate",
                                                                      "response_tokens_estimate",
                                                                      "text_tokens_estimate",
                                                                      "prompt_tokens",
                                                                      "response_tokens",
                                                                      "text_digest",
                                                                      "shard",
                                                                      "offset",
                                                                      "bytes",
                                                                      "media_folder",
                                                                      "data_columns"};

}  // namespace entrain
