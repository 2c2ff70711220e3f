#include "entrain/core/spec/workload.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr double kMelFramesPerSecond = 100.0;
constexpr double kLongestSeconds = 1e7;
// Sums of attention pairs over a batch have to stay within 64 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

[[noreturn]] void fail(const SampleSizes& sizes, const std::string& message) {
  throw InvalidInput(fmt::format("sample '{}': {}", sizes.id, message));
}

void check_seconds(double seconds, const char* what) {
  if (!(seconds > 0 && seconds <= kLongestSeconds)) {
    throw InvalidInput(fmt::format(
        "{} of {} s; a length in (0, {:.0f}] is needed", what, seconds, kLongestSeconds));
  }
}

SegmentWork segment_work(std::int64_t tokens, std::int64_t llm_tokens) {
  SegmentWork work;
  work.tokens = tokens;
  work.attention_pairs = tokens * tokens;
  work.llm_tokens = llm_tokens;
  return work;
}

// Σ length² over runs of `window` along a side of `length`, the last one shorter.
std::int64_t squared_runs(std::int64_t length, std::int64_t window) {
  const std::int64_t rest = length % window;
  return length / window * window * window + rest * rest;
}

// Of an image, a tile or a temporal patch that has this size when it is read.
SegmentWork image_work(const EncoderSpec& encoder, ImageSize resized) {
  const std::int64_t columns = resized.width / encoder.patch_size;
  const std::int64_t rows = resized.height / encoder.patch_size;
  const std::int64_t patches = columns * rows;
  const std::int64_t tokens = patches + extra_tokens(encoder);
  if (tokens > kMostTokens) {
    throw InvalidInput(
        fmt::format("an image of {} patches; at most {} allowed", tokens, kMostTokens));
  }
  SegmentWork work =
      segment_work(tokens, patches / (std::int64_t{encoder.merge_size} * encoder.merge_size));
  work.rows = rows;
  work.columns = columns;
  if (encoder.window_size > 0) {
    work.window_pairs = window_pairs(rows, columns, encoder.window_size / encoder.patch_size);
  }
  return work;
}

// Of an image whose tiles are one segment.
SegmentWork canvas_work(const EncoderSpec& encoder, ImageSize image, bool alone) {
  const SegmentWork tile = image_work(encoder, encoder_image_size(encoder, image));
  SegmentWork work = tile;
  work.canvas = feature_canvas(encoder, image, alone);
  const std::int64_t tiles = work.canvas.tiles.count();
  work.tokens = tiles * tile.tokens;
  if (work.tokens > kMostTokens) {
    throw InvalidInput(fmt::format(
        "an image of {} patches in {} tiles; at most {} allowed", work.tokens, tiles, kMostTokens));
  }
  work.attention_pairs = tiles * tile.attention_pairs;
  work.llm_tokens = canvas_features(encoder, work.canvas);
  return work;
}

// Returns what is read of the videos.
std::vector<VideoWork> add_vision(const EncoderSpec& encoder,
                                  const SampleSizes& sizes,
                                  std::vector<SegmentWork>& segments) {
  std::vector<VideoWork> videos;
  for (const ImageSize& image : sizes.images) {
    if (encoder.tiling.kind == TilingSpec::Kind::kAnyResolution) {
      segments.push_back(canvas_work(encoder, image, sizes.images.size() == 1));
      continue;
    }
    segments.insert(segments.end(),
                    static_cast<std::size_t>(tile_segments(encoder, image).count()),
                    image_work(encoder, encoder_image_size(encoder, image)));
  }
  for (const VideoSize& video : sizes.videos) {
    check_seconds(video.seconds, "a video");
    videos.push_back(video_work(encoder, video));
    segments.insert(segments.end(),
                    static_cast<std::size_t>(videos.back().patches()),
                    image_work(encoder, videos.back().size));
  }
  return videos;
}

void add_audio(const EncoderSpec& encoder,
               const SampleSizes& sizes,
               std::vector<SegmentWork>& segments) {
  const std::int64_t window = window_frames(encoder);
  for (const double seconds : sizes.audio_seconds) {
    check_seconds(seconds, "an audio clip");
    const std::int64_t frames = mel_frames(seconds);
    for (std::int64_t begin = 0; begin < frames; begin += window) {
      const std::int64_t real = ceil_div(std::min(window, frames - begin), 2);
      const std::int64_t tokens = encoder.pad_windows ? window_tokens(encoder) : real;
      segments.push_back(segment_work(tokens, real / 2));
    }
  }
}

void add_llm_pairs(const ModelSpec& model, SampleWork& work) {
  const LlmSpec& llm = model.llm;
  std::int64_t more = 0;
  for (std::size_t encoder = 0; encoder < model.encoders.size(); ++encoder) {
    const bool vision = model.encoders[encoder].modality == Modality::kVision;
    for (const SegmentWork& segment : work.segments[encoder]) {
      if (llm.cross_attention) {
        more += segment.tokens * (work.llm_tokens + llm.hidden);
      } else if (llm.full_image_attention && vision) {
        more += segment.llm_tokens * segment.llm_tokens / 2;
      }
    }
  }
  const std::int64_t before = std::max<std::int64_t>(0, work.llm_tokens - llm.sliding_window);
  work.llm_attention_pairs = work.llm_tokens * work.llm_tokens / 2 + more;
  if (llm.sliding_window > 0) {
    work.llm_window_pairs = work.llm_attention_pairs - before * before / 2;
  }
}

}  // namespace

std::int64_t mel_frames(double seconds) {
  return ceil_of_product(seconds, kMelFramesPerSecond);
}

std::int64_t window_frames(const EncoderSpec& encoder) {
  return ceil_of_product(encoder.window_seconds, kMelFramesPerSecond);
}

std::int64_t window_tokens(const EncoderSpec& encoder) {
  return ceil_div(window_frames(encoder), 2);
}

std::int64_t input_frames(const EncoderSpec& encoder, std::int64_t real) {
  const std::int64_t window = window_frames(encoder);
  return encoder.pad_windows      ? window
         : encoder.masked_padding ? std::min(window, 2 * ceil_div(real, 2) + 1)
                                  : real;
}

bool fits_input(const EncoderSpec& encoder, std::int64_t rows, std::int64_t tokens) {
  if (encoder.modality == Modality::kVision) {
    const std::int64_t tile = std::int64_t{encoder.table_side} * encoder.table_side;
    return rows + (has_one_size(encoder) ? rows / tile : 1) * extra_tokens(encoder) == tokens;
  }
  return encoder.masked_padding ? rows == input_frames(encoder, 2 * tokens)
                                : ceil_div(rows, 2) == tokens;
}

std::int64_t window_pairs(std::int64_t rows, std::int64_t columns, std::int64_t window) {
  return squared_runs(rows, window) * squared_runs(columns, window);
}

SampleWork sample_work(const ModelSpec& model, const SampleSizes& sizes) {
  const bool exact = sizes.prompt_tokens.has_value() && sizes.response_tokens.has_value();
  const std::int64_t prompt = exact ? *sizes.prompt_tokens : sizes.prompt_tokens_estimate;
  const std::int64_t response = exact ? *sizes.response_tokens : sizes.response_tokens_estimate;
  if (prompt < 0 || prompt > kMostTokens || response < 0 || response > kMostTokens) {
    fail(sizes,
         fmt::format("{} prompt and {} response tokens; counts in [0, {}] are needed",
                     prompt,
                     response,
                     kMostTokens));
  }
  SampleWork work;
  work.target_tokens = response;
  work.llm_tokens = prompt + response;
  for (const EncoderSpec& encoder : model.encoders) {
    std::vector<SegmentWork> segments;
    std::vector<VideoWork> videos;
    try {
      if (encoder.modality == Modality::kVision) {
        videos = add_vision(encoder, sizes, segments);
      } else {
        add_audio(encoder, sizes, segments);
      }
    } catch (const InvalidInput& error) {
      fail(sizes, error.what());
    }
    for (SegmentWork& segment : segments) {
      segment.llm_tokens *= model.llm.cross_attention ? 0 : 1;
      work.llm_tokens += segment.llm_tokens;
    }
    work.segments.push_back(std::move(segments));
    work.videos.push_back(std::move(videos));
  }
  if (work.llm_tokens > kMostTokens) {
    fail(sizes,
         fmt::format("{} tokens in the LLM; at most {} allowed", work.llm_tokens, kMostTokens));
  }
  add_llm_pairs(model, work);
  return work;
}

std::vector<SegmentPlace> segment_places(const EncoderSpec& encoder, const SampleSizes& sizes) {
  std::vector<SegmentPlace> places;
  const auto add = [&](std::size_t medium, std::int64_t parts) {
    for (std::int64_t part = 0; part < parts; ++part) {
      places.push_back({medium, part});
    }
  };
  const std::size_t images = sizes.images.size();
  const std::size_t videos = sizes.videos.size();
  if (encoder.modality == Modality::kAudio) {
    for (std::size_t clip = 0; clip < sizes.audio_seconds.size(); ++clip) {
      const std::int64_t frames = mel_frames(sizes.audio_seconds[clip]);
      add(images + videos + clip, ceil_div(frames, window_frames(encoder)));
    }
    return places;
  }
  for (std::size_t image = 0; image < images; ++image) {
    add(image, tile_segments(encoder, sizes.images[image]).count());
  }
  for (std::size_t video = 0; video < videos; ++video) {
    add(images + video, video_work(encoder, sizes.videos[video]).patches());
  }
  return places;
}

std::int64_t first_feature_token(const SampleWork& work, int encoder, int segment) {
  const auto module = static_cast<std::size_t>(encoder);
  const std::vector<SegmentWork>& segments = work.segments[module];
  const auto end = static_cast<std::size_t>(segment);
  std::size_t begin = 0;
  if (module < work.videos.size()) {
    std::int64_t of_videos = 0;
    for (const VideoWork& video : work.videos[module]) {
      of_videos += video.patches();
    }
    const std::size_t first_video = segments.size() - static_cast<std::size_t>(of_videos);
    begin = end >= first_video ? first_video : 0;  // texts may have videos before images
  }
  std::int64_t result = 0;
  for (std::size_t s = begin; s < end; ++s) {
    result += segments[s].llm_tokens;
  }
  return result;
}

}  // namespace entrain
