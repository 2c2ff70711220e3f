#include "entrain/core/spec/workload.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr double kMelFramesPerSecond = 100.0;
constexpr double kLongestSeconds = 1e7;
constexpr int kLongestSide = 1 << 24;
// Sums of attention pairs over a batch have to stay within 64 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Sizes are decimal numbers (1.1 s) that binary doubles miss by a hair, so a product that close to
// a whole number is that number: 1.1 s are 110 frames, not 111.
std::int64_t ceil_of_product(double value, double rate) {
  const double product = value * rate;
  const double whole = std::nearbyint(product);
  const bool is_whole = std::abs(product - whole) <= 1e-12 * product;
  return static_cast<std::int64_t>(is_whole ? whole : std::ceil(product));
}

[[noreturn]] void fail(const SampleSizes& sizes, const std::string& message) {
  throw InvalidInput(fmt::format("sample '{}': {}", sizes.id, message));
}

void check_seconds(const SampleSizes& sizes, double seconds, const char* what) {
  if (!(seconds > 0 && seconds <= kLongestSeconds)) {
    fail(sizes,
         fmt::format(
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

SegmentWork image_work(const EncoderSpec& encoder, const SampleSizes& sizes, ImageSize image) {
  ImageSize resized;
  try {
    resized = encoder_image_size(encoder, image);
  } catch (const InvalidInput& error) {
    fail(sizes, error.what());
  }
  const std::int64_t columns = resized.width / encoder.patch_size;
  const std::int64_t rows = resized.height / encoder.patch_size;
  const std::int64_t patches = columns * rows;
  const std::int64_t tokens = patches + extra_tokens(encoder);
  if (tokens > kMostTokens) {
    fail(sizes, fmt::format("an image of {} patches; at most {} allowed", tokens, kMostTokens));
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

void add_vision(const EncoderSpec& encoder,
                const SampleSizes& sizes,
                std::vector<SegmentWork>& segments) {
  for (const ImageSize& image : sizes.images) {
    segments.push_back(image_work(encoder, sizes, image));
  }
  for (const VideoSize& video : sizes.videos) {
    check_seconds(sizes, video.seconds, "a video");
    const ImageSize frame =
        video.size.value_or(ImageSize{encoder.default_frame_width, encoder.default_frame_height});
    const std::int64_t frames = ceil_of_product(video.seconds, encoder.frames_per_second);
    if (frames > kMostTokens) {
      fail(sizes, fmt::format("a video of {} frames; at most {} allowed", frames, kMostTokens));
    }
    segments.insert(segments.end(),
                    static_cast<std::size_t>(ceil_div(frames, 2)),
                    image_work(encoder, sizes, frame));
  }
}

void add_audio(const EncoderSpec& encoder,
               const SampleSizes& sizes,
               std::vector<SegmentWork>& segments) {
  const std::int64_t window = window_frames(encoder);
  for (const double seconds : sizes.audio_seconds) {
    check_seconds(sizes, seconds, "an audio clip");
    const std::int64_t frames = mel_frames(seconds);
    for (std::int64_t begin = 0; begin < frames; begin += window) {
      const std::int64_t real = ceil_div(std::min(window, frames - begin), 2);
      const std::int64_t tokens = encoder.pad_windows ? window_tokens(encoder) : real;
      segments.push_back(segment_work(tokens, real / 2));
    }
  }
}

}  // namespace

ImageSize smart_resize(ImageSize image,
                       int factor,
                       std::int64_t min_pixels,
                       std::int64_t max_pixels) {
  const auto [shorter, longer] = std::minmax(image.width, image.height);
  if (shorter < 1 || longer > kLongestSide) {
    throw InvalidInput(fmt::format("image of {}x{} pixels; sides in [1, {}] are needed",
                                   image.width,
                                   image.height,
                                   kLongestSide));
  }
  if (longer > std::int64_t{200} * shorter) {
    throw InvalidInput(
        fmt::format("image of {}x{} pixels; an aspect ratio of at most 200 is allowed",
                    image.width,
                    image.height));
  }
  const double width = image.width;
  const double height = image.height;
  // nearbyint rounds halves to even, as Python's round() does.
  auto columns = static_cast<std::int64_t>(std::nearbyint(width / factor));
  auto rows = static_cast<std::int64_t>(std::nearbyint(height / factor));
  const std::int64_t pixels = columns * factor * rows * factor;
  if (pixels > max_pixels) {
    const double scale = std::sqrt(height * width / static_cast<double>(max_pixels));
    columns =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(width / scale / factor)));
    rows =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(height / scale / factor)));
  } else if (pixels < min_pixels) {
    const double scale = std::sqrt(static_cast<double>(min_pixels) / (height * width));
    columns = static_cast<std::int64_t>(std::ceil(width * scale / factor));
    rows = static_cast<std::int64_t>(std::ceil(height * scale / factor));
  }
  return {static_cast<int>(columns * factor), static_cast<int>(rows * factor)};
}

ImageSize encoder_image_size(const EncoderSpec& encoder, ImageSize image) {
  if (has_one_size(encoder)) {
    const int side = encoder.table_side * encoder.patch_size;
    return {side, side};
  }
  return smart_resize(
      image, encoder.patch_size * encoder.merge_size, encoder.min_pixels, encoder.max_pixels);
}

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
    return rows + extra_tokens(encoder) == tokens;
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
    if (encoder.modality == Modality::kVision) {
      add_vision(encoder, sizes, segments);
    } else {
      add_audio(encoder, sizes, segments);
    }
    for (const SegmentWork& segment : segments) {
      work.llm_tokens += segment.llm_tokens;
    }
    work.segments.push_back(std::move(segments));
  }
  if (work.llm_tokens > kMostTokens) {
    fail(sizes,
         fmt::format("{} tokens in the LLM; at most {} allowed", work.llm_tokens, kMostTokens));
  }
  work.llm_attention_pairs = work.llm_tokens * work.llm_tokens / 2;
  return work;
}

std::int64_t first_feature_token(const SampleWork& work, int encoder, int segment) {
  std::int64_t result = 0;
  for (std::size_t e = 0; e <= static_cast<std::size_t>(encoder); ++e) {
    const std::vector<SegmentWork>& segments = work.segments[e];
    const std::size_t end =
        e < static_cast<std::size_t>(encoder) ? segments.size() : static_cast<std::size_t>(segment);
    for (std::size_t s = 0; s < end; ++s) {
      result += segments[s].llm_tokens;
    }
  }
  return result;
}

}  // namespace entrain
