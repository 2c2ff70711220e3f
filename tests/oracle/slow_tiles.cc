#include "tests/oracle/slow_tiles.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace entrain::oracle {
namespace {

int next_multiple(int value, int side) {
  int result = 0;
  while (result < value) {
    result += side;
  }
  return result;
}

ImageTiles cut_tiles(ImageSize image, int longest_edge, int side) {
  double ratio = static_cast<double>(image.width) / image.height;
  int width = longest_edge;
  int height = longest_edge;
  if (image.width >= image.height) {
    height = static_cast<int>(width / ratio);
    height += height % 2 == 0 ? 0 : 1;
  } else {
    width = static_cast<int>(height * ratio);
    width += width % 2 == 0 ? 0 : 1;
  }
  width = std::max(width, 1);
  height = std::max(height, 1);
  ratio = static_cast<double>(width) / height;
  if (width >= height) {
    width = next_multiple(width, side);
    height = next_multiple(static_cast<int>(width / ratio), side);
  } else {
    height = next_multiple(height, side);
    width = next_multiple(static_cast<int>(height * ratio), side);
  }
  ImageTiles tiles = {0, 0, width > side || height > side};
  for (int top = 0; top < height; top += side) {
    ++tiles.rows;
  }
  for (int left = 0; left < width; left += side) {
    ++tiles.columns;
  }
  return tiles;
}

ImageTiles choose_canvas(ImageSize image, int side, int min_tiles, int max_tiles) {
  std::vector<std::pair<int, int>> grids;  // columns, rows
  for (int columns = 1; columns <= max_tiles; ++columns) {
    for (int rows = 1; rows <= max_tiles; ++rows) {
      if (rows * columns >= min_tiles && rows * columns <= max_tiles) {
        grids.emplace_back(columns, rows);
      }
    }
  }
  std::stable_sort(grids.begin(), grids.end(), [](const auto& a, const auto& b) {
    return a.first * a.second < b.first * b.second;
  });
  const double ratio = static_cast<double>(image.width) / image.height;
  const auto difference = [&](const std::pair<int, int>& grid) {
    return std::abs(ratio - static_cast<double>(grid.first) / grid.second);
  };
  std::pair<int, int> best = grids.front();
  for (const std::pair<int, int>& grid : grids) {
    const double pixels = static_cast<double>(image.width) * image.height;
    const bool large = pixels > 0.5 * side * side * grid.first * grid.second;
    if (difference(grid) < difference(best) || (difference(grid) == difference(best) && large)) {
      best = grid;
    }
  }
  return {best.second, best.first, best.first * best.second > 1};
}

}  // namespace

ImageTiles slow_image_tiles(const EncoderSpec& encoder, ImageSize image) {
  const TilingSpec& tiling = encoder.tiling;
  const int side = encoder.table_side * encoder.patch_size;
  switch (tiling.kind) {
    case TilingSpec::Kind::kNone:
      return {};
    case TilingSpec::Kind::kLongestEdge:
      return tiling.split ? cut_tiles(image, tiling.longest_edge, side) : ImageTiles();
    case TilingSpec::Kind::kBestCanvas:
      return choose_canvas(image, side, tiling.min_tiles, tiling.max_tiles);
  }
  return {};
}

}  // namespace entrain::oracle
