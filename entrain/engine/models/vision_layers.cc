#include "entrain/engine/models/vision_layers.h"

#include <algorithm>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/audio_layers.h"
#include "entrain/engine/models/block.h"
#include "entrain/engine/models/weight_gradients.h"
#include "entrain/engine/models/weight_reader.h"

namespace entrain::engine {
namespace {

// The patches' rows of the table and their weights, for a table that is resized to every image.
struct TableTaps {
  std::vector<std::int64_t> rows;  // [tokens · 4]
  std::vector<float> weights;      // the same
};

// Between two table rows of one axis: the first, and the share of the one after it.
std::pair<std::int64_t, float> tap(std::int64_t place, std::int64_t places, std::int64_t side) {
  const float at_row =
      places == 1 ? 0.0F : static_cast<float>(place * (side - 1)) / static_cast<float>(places - 1);
  const std::int64_t first = std::min(static_cast<std::int64_t>(at_row), side - 2);
  return {first, at_row - static_cast<float>(first)};
}

TableTaps table_taps(const EncoderSpec& encoder,
                     std::span<const SegmentGrid> segments,
                     const RowRange& own) {
  const std::int64_t side = encoder.table_side;
  TableTaps taps;
  std::int64_t token = 0;
  for (const SegmentGrid& grid : segments) {
    for_each_patch(grid, encoder.merge_size, [&](std::int64_t row, std::int64_t column) {
      if (token >= own.begin && token < own.begin + own.size) {
        const auto [above, down] = tap(row, grid.rows, side);
        const auto [left, right] = tap(column, grid.columns, side);
        for (int i = 0; i < 4; ++i) {
          taps.rows.push_back((above + i / 2) * side + left + i % 2);
          taps.weights.push_back((i / 2 == 0 ? 1 - down : down) * (i % 2 == 0 ? 1 - right : right));
        }
      }
      ++token;
    });
  }
  return taps;
}

// What the tokens of packed segments are: -1 a class token, else the row of the table of positions
// of a patch, which follows the class token's row.
std::vector<std::int64_t> table_rows(const EncoderSpec& encoder,
                                     std::span<const SegmentGrid> segments) {
  const std::int64_t side = encoder.table_side;
  std::vector<std::int64_t> rows;
  for (const SegmentGrid& grid : segments) {
    ENTRAIN_INVARIANT(side == 0 || (grid.rows == side && grid.columns == side),
                      concat("an image of ",
                             grid.rows,
                             "x",
                             grid.columns,
                             " patches for a table of ",
                             side,
                             "x",
                             side));
    rows.insert(rows.end(), static_cast<std::size_t>(grid.extra), -1);
    for_each_patch(grid, encoder.merge_size, [&](std::int64_t row, std::int64_t column) {
      rows.push_back(grid.extra + row * side + column);
    });
  }
  return rows;
}

RowRange own_rows(std::int64_t rows, const TensorGroupPtr& group) {
  return group == nullptr ? RowRange{0, rows} : row_range(rows, group->index, group->size());
}

// The patches with a row of zeros for every class token.
at::Tensor with_class_rows(const at::Tensor& patches, const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= 0) {
      places.push_back(static_cast<std::int64_t>(i));
    }
  }
  const at::Tensor all = at::zeros({std::ssize(rows), patches.size(1)}, patches.options());
  return at::index_copy(all, 0, index_tensor(places, patches.device()), patches);
}

// What feature_canvas() says of the features of the segments' tiles. Shapes  newline: [1, width].
at::Tensor arranged(const EncoderSpec& encoder,
                    const at::Tensor& features,
                    const at::Tensor& newline,
                    std::span<const SegmentGrid> segments) {
  const std::int64_t side = encoder.table_side;
  const std::int64_t width = features.size(1);
  std::vector<at::Tensor> pieces;
  std::int64_t begin = 0;
  const auto take = [&](std::int64_t tiles) {
    const at::Tensor taken = features.narrow(0, begin, tiles * side * side);
    begin += taken.size(0);
    return taken;
  };
  for (const SegmentGrid& segment : segments) {
    const FeatureCanvas& canvas = segment.canvas;
    const ImageTiles& tiles = canvas.tiles;
    pieces.push_back(take(1));
    if (tiles.count() == 1) {
      if (tiles.whole) {  // else made up, to be measured
        pieces.push_back(newline);
      }
      continue;
    }
    at::Tensor image = take(tiles.count() - 1)
                           .view({tiles.rows, tiles.columns, side, side, width})
                           .permute({4, 0, 2, 1, 3})
                           .reshape({1, width, tiles.rows * side, tiles.columns * side})
                           .narrow(2, canvas.top, canvas.rows)
                           .narrow(3, canvas.left, canvas.columns);
    if (canvas.resized_rows != canvas.rows || canvas.resized_columns != canvas.columns) {
      image = at::upsample_bilinear2d(
          image, {canvas.resized_rows, canvas.resized_columns}, /*align_corners=*/false);
    }
    const std::int64_t rows = image.size(2);
    const at::Tensor ends = newline.expand({rows, width}).unsqueeze(1);
    pieces.push_back(at::cat({image[0].permute({1, 2, 0}), ends}, 1)
                         .reshape({rows * (image.size(3) + 1), width}));
  }
  return at::cat(pieces);
}

at::Tensor one_projector(const EncoderSpec& encoder,
                         const ProjectorSpec& spec,
                         const TensorGroupPtr& group,
                         WeightReader& weights,
                         const at::Tensor& input,
                         std::int64_t tokens,
                         std::span<const SegmentGrid> segments) {
  const double epsilon = spec.norm_epsilon > 0 ? spec.norm_epsilon : encoder.norm_epsilon;
  const std::int64_t block = merged_tokens(encoder);
  const bool vision = encoder.modality == Modality::kVision;
  const std::vector<SegmentGrid> grids = tiles_of(segments);
  const at::Tensor own = spec.norm_tokens ? weights.normed(encoder.norm, input, epsilon) : input;
  const auto merged_of = [block, vision, average = spec.average, grids](const at::Tensor& whole) {
    const at::Tensor used = vision ? patch_rows(whole, grids) : merged_rows(whole, grids);
    const std::int64_t rows = used.size(0) / block;
    return average ? used.reshape({rows, block, used.size(1)}).mean(1)
                   : used.reshape({rows, block * used.size(1)});
  };
  // Of a rank's part of the sum; one rank adds the newlines, as it does the bias.
  const auto finished = [&](const at::Tensor& features) {
    if (encoder.tiling.kind != TilingSpec::Kind::kAnyResolution) {
      return features;
    }
    const at::Tensor& newline = weights.take();
    return arranged(
        encoder, features, adds_bias(group) ? newline : at::zeros_like(newline), segments);
  };
  if (spec.num_matrices == 2 && !spec.norm_merged) {
    const MatrixInput merged = gather_input(own, tokens, group, merged_of);
    const Matrix inner = weights.matrix(spec.bias);
    const at::Tensor middle = activated(linear(merged.rows, inner, merged.again), spec.activation);
    const Matrix last = completed_by(group, weights.matrix(spec.bias));
    return all_reduce(finished(linear(middle, last)), group);
  }
  at::Tensor merged = gather_input(own, tokens, group, merged_of).rows;
  if (spec.norm_merged) {
    // On sharded rows, so that gradients of its parameters are partial.
    const std::int64_t features = merged.size(0);
    merged = gather_rows(
        weights.normed(encoder.norm, shard_rows(merged, group), epsilon), features, group);
  }
  if (spec.num_matrices == 2) {
    const Matrix inner = weights.matrix(spec.bias);
    merged = activated(linear(merged, inner), spec.activation);
  } else if (group != nullptr) {
    const std::int64_t width = merged.size(1) / group->size();
    merged = merged.narrow(1, group->index * width, width);
  }
  const Matrix last = completed_by(group, weights.matrix(spec.bias));
  return all_reduce(finished(linear(merged, last)), group);
}

}  // namespace

std::vector<SegmentGrid> tiles_of(std::span<const SegmentGrid> segments) {
  std::vector<SegmentGrid> tiles;
  for (const SegmentGrid& segment : segments) {
    tiles.insert(tiles.end(), static_cast<std::size_t>(segment.canvas.tiles.count()), segment);
    for (auto tile = tiles.end() - segment.canvas.tiles.count(); tile != tiles.end(); ++tile) {
      tile->canvas = {};
    }
  }
  return tiles;
}

at::Tensor patch_embedding(const EncoderSpec& encoder,
                           const TensorGroupPtr& group,
                           std::span<const NamedParameter> layer,
                           const at::Tensor& patches,
                           std::span<const SegmentGrid> segments) {
  WeightReader weights(layer, encoder.lora);
  const Matrix embedding = weights.matrix(encoder.patch_bias);
  if (!encoder.class_token && (encoder.table_side == 0 || encoder.table_interpolated)) {
    at::Tensor hidden = split_linear(shard_rows(patches, group), embedding.weight, embedding.bias);
    if (encoder.table_interpolated) {
      const TableTaps taps = table_taps(encoder, segments, own_rows(patches.size(0), group));
      const at::Tensor weight = at::tensor(taps.weights, at::kFloat)
                                    .to(hidden.options().requires_grad(false))
                                    .view({hidden.size(0), 4, 1});
      const at::Tensor rows =
          split_embedding(weights.take(), index_tensor(taps.rows, hidden.device()));
      hidden = hidden + at::sum(rows.view({hidden.size(0), 4, hidden.size(1)}) * weight, 1);
    }
    return encoder.embedding_norm ? weights.normed(encoder.norm, hidden, encoder.norm_epsilon)
                                  : hidden;
  }
  const std::vector<std::int64_t> rows = table_rows(encoder, segments);
  const auto tokens = std::ssize(rows);
  const at::Tensor input = encoder.class_token ? with_class_rows(patches, rows) : patches;
  at::Tensor hidden = split_linear(shard_rows(input, group), embedding.weight);
  const RowRange own = own_rows(tokens, group);
  std::vector<std::int64_t> places;
  std::vector<float> is_patch;
  for (std::int64_t row = own.begin; row < own.begin + own.size; ++row) {
    const std::int64_t place = rows[static_cast<std::size_t>(row)];
    places.push_back(std::max<std::int64_t>(place, 0));
    is_patch.push_back(place < 0 ? 0.0F : 1.0F);
  }
  const at::Tensor patch =
      at::tensor(is_patch, at::kFloat).to(hidden.options().requires_grad(false)).unsqueeze(1);
  if (embedding.bias.has_value()) {
    hidden = hidden + patch * *embedding.bias;
  }
  if (encoder.class_token) {
    hidden = hidden + (1 - patch) * weights.take();
  }
  if (encoder.table_side > 0) {
    hidden = hidden + split_embedding(weights.take(), index_tensor(places, hidden.device()));
  }
  return encoder.embedding_norm ? weights.normed(encoder.norm, hidden, encoder.norm_epsilon)
                                : hidden;
}

at::Tensor projector(const EncoderSpec& encoder,
                     const TensorGroupPtr& group,
                     std::span<const NamedParameter> layer,
                     const at::Tensor& input,
                     std::int64_t tokens,
                     std::span<const SegmentGrid> segments) {
  WeightReader weights(layer, encoder.lora);
  const std::vector<at::Tensor> inputs = side_by_side(input, encoder.hidden);
  std::vector<at::Tensor> levels;
  for (int level = 0; level < feature_levels(encoder); ++level) {
    levels.push_back(one_projector(encoder,
                                   projector_of_level(encoder.projector, level),
                                   group,
                                   weights,
                                   inputs[static_cast<std::size_t>(level)],
                                   tokens,
                                   segments));
  }
  return levels.size() == 1 ? levels.front() : at::cat(levels, 1);
}

}  // namespace entrain::engine
