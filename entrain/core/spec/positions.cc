#include "entrain/core/spec/positions.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {

std::vector<GridSpan> image_grids(const ModelSpec& model,
                                  const SampleWork& work,
                                  std::span<const std::int64_t> feature_begin) {
  std::vector<GridSpan> grids;
  std::size_t index = 0;
  for (std::size_t module = 0; module < work.segments.size(); ++module) {
    const EncoderSpec& encoder = model.encoders.at(module);
    for (const SegmentWork& segment : work.segments[module]) {
      if (encoder.modality == Modality::kVision) {
        grids.push_back({feature_begin[index],
                         segment.rows / encoder.merge_size,
                         segment.columns / encoder.merge_size});
      }
      ++index;
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
    for (std::int64_t frame = 0; frame < grid.frames; ++frame) {
      for (std::int64_t row = 0; row < grid.rows; ++row) {
        for (std::int64_t column = 0; column < grid.columns; ++column) {
          positions.push_back({next + frame, next + row, next + column});
        }
      }
    }
    next += std::max({grid.frames, grid.rows, grid.columns});
  }
  text_until(num_tokens);
  return positions;
}

}  // namespace entrain
