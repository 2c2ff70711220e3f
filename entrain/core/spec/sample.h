// Sizes of one training sample: all that the planner and the assigner know about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace entrain {

struct ImageSize {
  int width = 0;   // pixels, >= 1
  int height = 0;  // pixels, >= 1
  bool operator==(const ImageSize&) const = default;
};

// Where a sample lies in a file, so that one read finds it: in a tar shard from its first member's
// header to the end of its last one's padded content, in a JSON file its record.
struct SampleLocation {
  std::string shard;  // path as given to `entrain index`, relative to the index file if possible
  std::int64_t offset = 0;  // in bytes
  std::int64_t bytes = 0;
  std::string media = {};    // folder of the files that a record names, likewise; empty for a shard
  std::string columns = {};  // what its parts are called there (ColumnMap); empty: as here
  bool operator==(const SampleLocation&) const = default;
};

struct VideoSize {
  double seconds = 0;
  std::optional<std::int64_t> frames;  // at source rate
  std::optional<ImageSize> size;
  bool operator==(const VideoSize&) const = default;
};

struct SampleSizes {
  std::string id;                     // unique in its index
  std::vector<ImageSize> images;      // in reading order
  std::vector<double> audio_seconds;  // one entry a clip
  std::vector<VideoSize> videos;
  std::int64_t prompt_chars = 0;    // Unicode code points without loss
  std::int64_t response_chars = 0;  // with loss
  std::int64_t prompt_tokens_estimate = 0;
  std::int64_t response_tokens_estimate = 0;
  // Exact text tokens under the index's tokenizer and template; modality features not counted.
  // Present in an index made from real data; training refuses samples without them.
  std::optional<std::int64_t> prompt_tokens;    // tokens without loss, template included
  std::optional<std::int64_t> response_tokens;  // tokens with loss, end-of-sequence included
  std::optional<SampleLocation> location;

  // Images, videos and audio clips: the media marked in the text layout.
  [[nodiscard]] int num_media() const {
    return static_cast<int>(images.size() + videos.size() + audio_seconds.size());
  }
  bool operator==(const SampleSizes&) const = default;
};

}  // namespace entrain
