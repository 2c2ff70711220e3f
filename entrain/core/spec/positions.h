// Positions of a sample's tokens in time, rows and columns (M-RoPE).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

struct AxisPosition {
  std::int64_t time = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
  bool operator==(const AxisPosition&) const = default;
};

// The tokens that one segment's features fill: `rows` × `columns`, row by row.
struct GridSpan {
  std::int64_t begin = 0;  // token of the sample
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // Of a later temporal patch of a video whose patches share one grid: where the grid before it
  // begins, so many positions later in time than the video's first.
  bool continues = false;
  std::int64_t time = 0;
  [[nodiscard]] std::int64_t tokens() const { return rows * columns; }
};

// The grids of a sample's images, tiles and temporal patches, by rising begin. Audio has none: its
// features count as text.
//
// Shapes  feature_begin: [segments of all encoders, in module order] first token of its features.
std::vector<GridSpan> image_grids(const ModelSpec& model,
                                  const SampleWork& work,
                                  std::span<const std::int64_t> feature_begin);

// A text token's three positions are equal, one above the largest row or column before it. A grid
// begins there too, in all three; within it they count rows and columns.
//
// Shapes    result: [num_tokens].
// Requires  grids by rising begin, without overlap, within the tokens.
// Source    Qwen2-VL (arXiv 2409.12191, section 2.1). Text after a video follows its rows and
// columns
//           as in get_rope_index() of Qwen2.5-VL in transformers, however long the video is.
std::vector<AxisPosition> multimodal_positions(std::int64_t num_tokens,
                                               std::span<const GridSpan> grids);

}  // namespace entrain
