#include "entrain/core/spec/positions.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// Of the grids of an encoder, of which the last are those of its videos.
void set_times(std::span<const VideoWork> videos, std::span<GridSpan> grids) {
  auto grid = grids.end();
  for (auto video = videos.rbegin(); video != videos.rend(); ++video) {
    grid -= video->patches();
    for (std::int64_t patch = 1; patch < video->patches() && video->time_step > 0; ++patch) {
      // In float32, as the original multiplies.
      grid[patch].time = static_cast<std::int64_t>(static_cast<float>(patch) * video->time_step);
      grid[patch].continues = true;
    }
  }
}

}  // namespace

std::vector<GridSpan> image_grids(const ModelSpec& model,
                                  const SampleWork& work,
                                  std::span<const std::int64_t> feature_begin) {
  std::vector<GridSpan> grids;
  std::size_t index = 0;
  for (std::size_t module = 0; module < work.segments.size(); ++module) {
    const EncoderSpec& encoder = model.encoders.at(module);
    const std::size_t first = index;
    for (const SegmentWork& segment : work.segments[module]) {
      if (encoder.modality == Modality::kVision) {
        grids.push_back({feature_begin[index],
                         segment.rows / encoder.merge_size,
                         segment.columns / encoder.merge_size});
      }
      ++index;
    }
    if (module < work.videos.size() && !work.videos[module].empty()) {
      const auto num_grids = static_cast<std::ptrdiff_t>(index - first);
      set_times(work.videos[module], {grids.end() - num_grids, grids.end()});
    }
  }
  std::sort(grids.begin(), grids.end(), [](const GridSpan& a, const GridSpan& b) {
    return a.begin < b.begin;
  });
  return grids;
}

std::vector<AxisPosition> multimodal_positions(std::int64_t num_tokens,
                                               std::span<const GridSpan> grids) {
  std::vector<AxisPosition> positions;
  positions.reserve(static_cast<std::size_t>(num_tokens));
  std::int64_t begin = 0;  // position of the latest grid
  std::int64_t next = 0;
  const auto text_until = [&](std::int64_t end) {
    for (std::int64_t token = std::ssize(positions); token < end; ++token, ++next) {
      positions.push_back({next, next, next});
    }
  };
  for (const GridSpan& grid : grids) {
    ENTRAIN_INVARIANT(
        grid.begin >= std::ssize(positions) && grid.begin + grid.tokens() <= num_tokens,
        fmt::format("a grid of {} tokens at {} after {} of {} tokens",
                    grid.tokens(),
                    grid.begin,
                    positions.size(),
                    num_tokens));
    text_until(grid.begin);
    const std::int64_t first = grid.continues ? begin : next;
    for (std::int64_t row = 0; row < grid.rows; ++row) {
      for (std::int64_t column = 0; column < grid.columns; ++column) {
        positions.push_back({first + grid.time, first + row, first + column});
      }
    }
    begin = first;
    next = first + std::max(grid.rows, grid.columns);
  }
  text_until(num_tokens);
  return positions;
}

}  // namespace entrain
